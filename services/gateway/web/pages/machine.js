// One machine: what it is, its slots, and an administrator's orders.
import { Ago, At, Badge, Bar, Card, Facts, Head, Legend, Name, Part, Since, colour } from "../parts/bits.js";
import { MachineUse } from "../parts/machine_use.js";
import { Table } from "../parts/table.js";
import { confirm } from "../parts/dialog.js";
import { ask, url } from "../lib/api.js";
import { html } from "../lib/html.js";
import { count, duration, isNumber, memory, number } from "../lib/format.js";
import { href } from "../lib/route.js";
import { useData } from "../lib/data.js";

const COLUMNS = (admin, machine, refresh) => [
  { name: "Slot", kind: "wrap", cell: (row) => html`<${Name} text=${row.Name} />` },
  { name: "State", cell: (row) => html`<${Badge} state=${row.State} text=${`${row.State} / ${row.Activity}`} />` },
  { name: "Kind", cell: (row) => row.SlotType ?? "" },
  { name: "Cpus", num: true, cell: (row) => number(row.Cpus) },
  { name: "Memory", num: true, cell: (row) => memory(row.Memory) },
  { name: "GPUs", num: true, cell: (row) => (row.GPUs ? number(row.GPUs) : "") },
  { name: "User", kind: "wrap", cell: (row) => (row.RemoteOwner ? html`<${Name} text=${row.AccountingGroup ?? row.RemoteOwner} />` : "") },
  { name: "Job", cell: (row) => (row.JobId ? html`<a href=${href(["job", row.JobId])}>${row.JobId}</a>` : "") },
  { name: "Since", num: true, cell: (row) => html`<${Since} at=${row.EnteredCurrentActivity} />` },
  ...(admin ? [{ name: "Orders", cell: (row) => row.State === "Claimed" && html`<button type="button" class="button small danger" onClick=${() => vacate(row.Name, refresh)}>Vacate<span class="unseen"> ${row.Name}</span></button>` }] : []),
];

export function Machine({ path, query, level }) {
  const name = path[1] ?? "";
  const answer = useData(url("/v1/overview/machine", { name }), { types: ["slot.changed", "claim.*"], every: 10000 });
  const admin = level === "ADMINISTRATOR";
  return html`
    <${Head} title=${name} crumb=${html`<a href=${href(["machines"])}>Machines</a>`}>
      <a class="button" href=${href(["jobs"], { machine: name })}>Jobs here</a>
      <a class="button" href=${href(["jobs"], { machine: name, history: "true" })}>Jobs that ran here</a>
      ${admin && answer.data && (answer.data.about.Draining === true
        ? html`<button type="button" class="button" onClick=${() => undrain(name, answer.refresh)}>Cancel draining …</button>`
        : html`<button type="button" class="button danger" onClick=${() => drain(name, answer.refresh)}>Drain …</button>`)}
    </${Head}>
    <${Part} answer=${answer} lines=${8}>${(data) => html`<${Shown} data=${data} query=${query} admin=${admin} refresh=${answer.refresh} />`}</${Part}>`;
}

function Shown({ data, query, admin, refresh }) {
  const { about, slots } = data;
  const states = {};
  for (const slot of slots) {
    if (slot.SlotType === "Partitionable" && !slot.Cpus) continue;
    states[slot.State] ??= { slots: 0, cpus: 0 };
    states[slot.State].slots += 1;
    states[slot.State].cpus += slot.Cpus ?? 0;
  }
  const parts = Object.entries(states).map(([label, one]) => ({ label, value: one.cpus, tone: colour(label), unit: one.cpus === 1 ? "cpu" : "cpus", note: `${count(one.slots)} ${one.slots === 1 ? "slot" : "slots"}` }));
  return html`<div class="grid">
    <${Card} title="Cpus by state" wide="w6"><${Bar} size="tall" parts=${parts} /><${Legend} parts=${parts} /></${Card}>
    <${Card} title="The machine" wide="w6"><${Facts} facts=${[
      ["System", about.OpSysLongName ?? about.OpSysAndVer], ["Processor", [about.CpuModel, about.Arch].filter(Boolean).join(", ")],
      ["Cpus", about.TotalCpus && number(about.TotalCpus)], ["Memory", about.TotalMemory && memory(about.TotalMemory)], ["Disk", about.TotalDisk && memory(about.TotalDisk / 1024)],
      ["Load", isNumber(about.TotalLoadAvg) && number(about.TotalLoadAvg)], ["Keyboard idle", isNumber(about.KeyboardIdle) && duration(about.KeyboardIdle)],
      ["Daemon", about.MyAddress], ["Started", about.DaemonStartTime && html`<${Ago} at=${about.DaemonStartTime} />`], ["Heard of", about.LastHeardFrom && html`<${Ago} at=${about.LastHeardFrom} />`],
      ["Asleep", about.Offline === true && asleep(about)], ["Containers", [about.HasDocker && "Docker", about.HasSingularity && "Apptainer"].filter(Boolean).join(", ")],
    ]} /></${Card}>
    <${MachineUse} about=${about} slots=${slots} query=${query} />
    ${isNumber(about.ExpectedMachineGracefulDrainingBadput) && html`<${Card} title="Draining" note=${about.Draining === true ? "its slots take no new jobs" : "what it would cost now, and has cost"}><${Facts} facts=${[
      ["Drains since", about.Draining === true && html`<${Ago} at=${about.LastDrainStartTime} />`], ["Reason", about.Draining === true && about.DrainReason],
      ...costs(about),
      ["Cost so far", html`${lost(about.TotalMachineDrainingBadput ?? 0)}, ${hours(about.TotalMachineDrainingUnclaimedTime ?? 0)} idle${about.RoostDrainingCountedSince > 0 && html`, since <${At} at=${about.RoostDrainingCountedSince} />`}`],
    ]} /></${Card}>`}
    <${Card} title="Slots" flush note=${data.fits > slots.length ? `${count(slots.length)} of ${count(data.fits)}` : count(slots.length)}>
      <${Table} caption="Slots of this machine" columns=${COLUMNS(admin, data.machine, refresh)} rows=${slots} id=${(row) => row.Name} />
    </${Card}></div>`;
}

const asleep = (about) => html`${about.HibernationState ?? ""} since <${At} at=${about.EnteredCurrentState} />${about.MachineLastMatchTime
  ? html`; a job was matched with it <${Ago} at=${about.MachineLastMatchTime} />${about.Unhibernate === false ? ", but UNHIBERNATE leaves it asleep" : ": it is to be woken"}` : ""}`;

const hours = (seconds) => `${number((seconds ?? 0) / 3600)} cpu-hours`;
const lost = (seconds) => `${hours(seconds)} of work lost`;

/** What a drain would cost, either way; once where both are the same, with the reason. */
function costs(about) {
  if (about.Offline === true) return [];
  const alike = ["Completion", "Badput"].every((what) => about[`ExpectedMachineGracefulDraining${what}`] === about[`ExpectedMachineQuickDraining${what}`]);
  if (!alike) return [["Gracefully", cost(about, "Graceful")], ["Quickly", cost(about, "Quick")]];
  return [["Gracefully or quickly", html`${cost(about, "Graceful")} <span class="soft">(the same: no job that runs here may retire, see MAXJOBRETIREMENTTIME)</span>`]];
}

/** When a drain would be done, and what work it would lose. */
function cost(about, how) {
  const end = about[`ExpectedMachine${how}DrainingCompletion`];
  const badput = about[`ExpectedMachine${how}DrainingBadput`];
  if (!isNumber(end) || !isNumber(badput)) return "";
  return html`empty ${end * 1000 > Date.now() ? html`by <${At} at=${end} />` : "at once"}, ${lost(badput)}`;
}

/** What the daemons answered, or throws what one of them refused. */
function answered(list, done) {
  const wrong = (Array.isArray(list) ? list : []).filter((one) => one.error || one.done === false || one.code);
  if (wrong.length) throw new Error(wrong.map((one) => one.error ?? one.reason ?? JSON.stringify(one)).join("; "));
  return done;
}

const drain = (name, refresh) =>
  confirm({
    title: `Drain ${name}?`,
    text: "Its slots take no new jobs. Jobs that run are ended as you say below, and start again elsewhere.",
    action: "Drain",
    danger: true,
    fields: [
      { name: "how", label: "Running jobs", options: [["graceful", "may retire (MaxJobRetirementTime)"], ["quick", "are ended, with time to vacate"], ["fast", "are killed"]] },
      { name: "reason", label: "Reason, shown to others" },
    ],
    then: async ({ how, reason }) => {
      const told = await ask("/v1/machines/drain", { method: "POST", body: { names: [name], how, reason } });
      refresh();
      return answered(told, `${name} drains`);
    },
  });

const undrain = (name, refresh) =>
  confirm({
    title: `End the draining of ${name}?`,
    text: "Its slots take jobs again.",
    action: "End draining",
    then: async () => {
      const told = await ask("/v1/machines/cancel-drain", { method: "POST", body: { names: [name] } });
      refresh();
      return answered(told, `${name} takes jobs again`);
    },
  });

const vacate = (slot, refresh) =>
  confirm({
    title: `Vacate ${slot}?`,
    text: "Its claim ends; the job starts again elsewhere.",
    action: "Vacate",
    danger: true,
    fields: [{ name: "how", label: "The job", options: [["graceful", "gets time to end"], ["fast", "is killed"]] }],
    then: async ({ how }) => {
      const told = await ask("/v1/machines/vacate", { method: "POST", body: { names: [slot], how } });
      refresh();
      return answered(told, `${slot} is vacated`);
    },
  });
