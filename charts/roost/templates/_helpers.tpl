{{/* Names begin with the release's: what a daemon's host, volume and Secret are called. */}}
{{- define "roost.prefix" -}}
{{- printf "%s-" (.Release.Name | trunc 40 | trimSuffix "-") -}}
{{- end }}

{{- define "roost.image" -}}
{{- printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) -}}
{{- end }}

{{/* What all objects of a release have in common. */}}
{{- define "roost.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
app.kubernetes.io/name: roost
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{/* Labels by which a role's pods are found: dict "root" $ "role" "schedd". */}}
{{- define "roost.selector" -}}
app.kubernetes.io/name: roost
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .role }}
{{- end }}

{{/* The daemons, as lines of JSON: service, role, name, and whether they use Redis. In the order of prepare's. */}}
{{- define "roost.daemons" -}}
{{- $found := list -}}
{{- $several := list (list "collector" .Values.collectors) (list "negotiator" .Values.negotiators) (list "schedd" .Values.schedds) (list "gateway" .Values.gateways) -}}
{{- range $several -}}
  {{- $role := index . 0 -}}
  {{- range $n := until (int (index . 1)) -}}
    {{- $end := eq $n 0 | ternary "" (toString (add1 $n)) -}}
    {{- $found = append $found (dict "service" (printf "%s%s" $role $end) "role" $role "name" (printf "%s%s" $role $end) "store" (has $role (list "collector" "negotiator" "gateway"))) -}}
    {{- if eq $role "negotiator" -}}
      {{- $found = append $found (dict "service" (printf "had%s" $end) "role" "had" "name" (printf "negotiator%s" $end) "store" true) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- $found = append $found (dict "service" "registrar" "role" "registrar" "name" "registrar" "store" false) -}}
{{- range $role := list "journal" "defrag" "gangliad" "adstash" -}}
  {{- if index $.Values $role -}}
    {{- $found = append $found (dict "service" $role "role" $role "name" $role "store" (eq $role "defrag")) -}}
  {{- end -}}
{{- end -}}
{{- toJson $found -}}
{{- end }}

{{/* A value of a map by role, laid over what all have: dict "all" … "of" … "role" …. */}}
{{- define "roost.of" -}}
{{- $own := index .of .role | default dict -}}
{{- toYaml (mergeOverwrite (deepCopy .all) $own) -}}
{{- end }}

{{/* What all pods have in common: dict "root" $ "user" its number, "placed" the values that say on which nodes ($.Values unless
given), "token" whether it may ask Kubernetes (not, unless given). */}}
{{- define "roost.pod" -}}
{{- $placed := .placed | default .root.Values -}}
automountServiceAccountToken: {{ .token | default false }}
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: {{ .user }}
  runAsGroup: {{ .user }}
  fsGroup: {{ .user }}
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: { type: RuntimeDefault }
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $placed.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $placed.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "roost.container-security" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: { drop: [ALL] }
{{- end }}

{{/* Where pods that are alike come to lie: on as many nodes as there are. */}}
{{- define "roost.spread" -}}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels: {{- include "roost.selector" . | nindent 8 }}
{{- end }}

{{- define "roost.probes" -}}
startupProbe:
  httpGet: { path: /healthz, port: health }
  periodSeconds: 2
  failureThreshold: 60
livenessProbe:
  httpGet: { path: /healthz, port: health }
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  httpGet: { path: /readyz, port: health }
  periodSeconds: 4
  timeoutSeconds: 5
{{- end }}

{{- define "roost.pod-annotations" -}}
{{- if .Values.metrics.annotations }}
prometheus.io/scrape: "true"
prometheus.io/port: "9690"
prometheus.io/path: /metrics
{{- end }}
{{- end }}

{{/* Where the broker, its administration and Redis are; {user} and {password} are filled in by prepare. */}}
{{- define "roost.amqp-urls" -}}
{{- if .Values.rabbitmq.external.urls -}}
{{- .Values.rabbitmq.external.urls -}}
{{- else -}}
{{- $urls := list -}}
{{- range $n := until (int .Values.rabbitmq.replicas) -}}
{{- $urls = append $urls (printf "amqp://{user}:{password}@%srabbitmq-%d.%srabbitmq:5672/" (include "roost.prefix" $) $n (include "roost.prefix" $)) -}}
{{- end -}}
{{- join "," $urls -}}
{{- end -}}
{{- end }}

{{- define "roost.broker-api" -}}
{{- if .Values.rabbitmq.external.urls -}}
{{- required "rabbitmq.external.api: the registrar needs the broker's administration" .Values.rabbitmq.external.api -}}
{{- else -}}
{{- $urls := list -}}
{{- range $n := until (int .Values.rabbitmq.replicas) -}}
{{- $urls = append $urls (printf "http://{user}:{password}@%srabbitmq-%d.%srabbitmq:15672" (include "roost.prefix" $) $n (include "roost.prefix" $)) -}}
{{- end -}}
{{- join "," $urls -}}
{{- end -}}
{{- end }}

{{- define "roost.redis-urls" -}}
{{- if .Values.redis.external.url -}}
{{- .Values.redis.external.url -}}
{{- else if eq (int .Values.redis.replicas) 1 -}}
{{- printf "redis://{user}:{password}@%sredis:6379/0" (include "roost.prefix" .) -}}
{{- else -}}
{{- $hosts := list -}}
{{- range $n := until 3 -}}
{{- $hosts = append $hosts (printf "%ssentinel-server-%d:26379" (include "roost.prefix" $) $n) -}}
{{- end -}}
{{- printf "redis+sentinel://{user}:{password}@%s/roost/0?sentinel_user=pool&sentinel_password={asking}" (join "," $hosts) -}}
{{- end -}}
{{- end }}

{{/* Whether Redis is here, with replicas and sentinels. */}}
{{- define "roost.sentinels" -}}
{{- if and (not .Values.redis.external.url) (gt (int .Values.redis.replicas) 1) -}}yes{{- end -}}
{{- end }}

{{/* Changes when the users of broker and Redis do, which these read as they start. */}}
{{- define "roost.users" -}}
{{- printf "%v %v %v %v 2" .Values.collectors .Values.negotiators .Values.schedds .Values.gateways | sha256sum | trunc 16 -}}
{{- end }}

{{/* The public keys of all gateways, in everybody's volume of keys. */}}
{{- define "roost.gateway-keys" -}}
{{- range $n := until (int .Values.gateways) }}
{{- $name := printf "gateway%s.pub" (eq $n 0 | ternary "" (toString (add1 $n))) }}
- { key: gateways..{{ $name }}, path: gateways/{{ $name }} }
{{- end }}
{{- end }}

{{/* Where execution points enroll. */}}
{{- define "roost.gateway-urls" -}}
{{- printf "https://%sgateway:9680" (include "roost.prefix" .) -}}
{{- end }}

{{/* All Secrets that prepare reads and replaces. */}}
{{- define "roost.secrets" -}}
{{- $prefix := include "roost.prefix" . -}}
{{- $found := list -}}
{{- range list "authority" "roost" "loader" "join" "rabbitmq" "redis" "consumers" "journal" "registrar" "defrag" "rooster" "gangliad" "adstash" -}}
{{- $found = append $found (printf "%s%s" $prefix .) -}}
{{- end -}}
{{- range include "roost.daemons" . | fromJsonArray -}}
{{- $found = append $found (printf "%s%s" $prefix .service) -}}
{{- end -}}
{{- if include "roost.sentinels" . -}}
{{- $found = append $found (printf "%ssentinel" $prefix) -}}
{{- end -}}
{{- $found | uniq | sortAlpha | toJson -}}
{{- end }}

{{/* Where a daemon keeps what is its own, in its volume. */}}
{{- define "roost.spool" -}}
/var/lib/roost/volume/spool
{{- end }}

{{/* The volume of each pod of a StatefulSet: dict "root" $ "name" … "size" …. */}}
{{- define "roost.volume-claim" -}}
volumeClaimTemplates:
  - metadata:
      name: {{ .name }}
      labels:
        app.kubernetes.io/instance: {{ .root.Release.Name }}
    spec:
      accessModes: [ReadWriteOnce]
      {{- with .root.Values.persistence.storageClass }}
      storageClassName: {{ . }}
      {{- end }}
      resources: { requests: { storage: {{ .size }} } }
{{- end }}

{{/* Made before all else, at an install and at each upgrade, and taken away when done; the lowest weight first. */}}
{{- define "roost.hook" -}}
helm.sh/hook: pre-install,pre-upgrade
helm.sh/hook-weight: {{ . | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end }}
