/* The spawner: keeps what is between the fork server and its jobs in C, where a fork of Python costs milliseconds.
 *
 * `roost-spawner serve`: a child of the fork server, which talks to it by descriptor 3. For every channel that comes it
 * forks a nanny, which is a child of the server and not of the spawner (CLONE_PARENT), as one that the server has forked
 * itself. A nanny reads one order, starts the job isolated, waits for it, leaves nothing of it behind and reports. What it
 * does, what it hears and what it says is in `nanny.py`, `job.py` and `cgroup.py`, which do the same where this program
 * is not there; whoever changes one changes the other, and one suite of tests holds both.
 *
 * What it does not know, it refuses: an order with a word that is not in the lists below starts nothing, as it may ask for
 * a wall that this program does not build.
 *
 * `roost-spawner check`: reads orders from standard input, as frames, and says of each whether it would be obeyed.
 * `roost-spawner probe KEPT`: the program of the server's test at its start: exit 42 when the walls stand around it.
 *
 * The filters of system calls come from the server (`seccomp.py`), once. It is one file without a library beside libc's,
 * so that a compiler is all that it needs; hence its length. For Linux with 64 bits.
 */

#define _GNU_SOURCE
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef __LP64__
#error "a machine with 64 bits is needed"
#endif

/* The version of the walls that it puts up: forkserver.WALLS. */
#define WALLS 3
/* The digest of this file, given by who compiles it (build.py): a program of another source is not used. */
#ifndef SOURCE
#define SOURCE "unknown"
#endif

#define MOST_FRAME (64u * 1024 * 1024)
#define MOST_VALUES (1 << 20)
#define MOST_DEPTH 16
#define CHANNEL 3
#define OOM_SCORE "800" /* under pressure of the machine its jobs go before its daemons */
#define PROBED 42

/* How long to wait between two rounds of killing, ms; rounds of stopping a family before it is killed. */
#define KILL_ROUND_MS 10
#define STOP_ROUNDS 8
/* How often to look whether a frozen cgroup of version 1 has come to rest, and how long after each other, us. */
#define FREEZE_ROUNDS 50
#define FREEZE_ROUND_US 2000
/* How often the counters are looked at again after a job has hit its limit, and how long after each other, ms. */
#define UNEASY_LOOKS 40
#define UNEASY_MS 50
/* The kernel charges memory in portions, and stops at a limit when the next one does not fit. */
#define FULL 0.95
/* Looks at the memory of all processes, where no cgroup tells the peak: seconds, as nanny.py has them. */
#define FIRST_LOOK_S 0.1
#define LOOK_GROWTH 1.25
#define MOST_LOOK_S 30.0
#define LOOK_SHARE 100.0

/* What older headers lack. */
#ifndef CLONE_INTO_CGROUP
#define CLONE_INTO_CGROUP 0x200000000ULL
#endif
#define CALL_CLONE3 435
#define CALL_CLOSE_RANGE 436
#define CALL_LANDLOCK_CREATE 444
#define CALL_LANDLOCK_ADD 445
#define CALL_LANDLOCK_RESTRICT 446
#ifndef PR_CAP_AMBIENT
#define PR_CAP_AMBIENT 47
#define PR_CAP_AMBIENT_CLEAR_ALL 4
#endif

static void complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

static void complain(const char *format, ...) {
    char line[1024];
    va_list words;
    va_start(words, format);
    int length = vsnprintf(line, sizeof line - 1, format, words);
    va_end(words);
    if (length < 0)
        return;
    if ((size_t)length > sizeof line - 2)
        length = sizeof line - 2;
    line[length++] = '\n';
    if (write(2, line, (size_t)length) < 0)
        return;
}

/* Whoever has no memory left ends: the kernel kills its job, the server what is left of it. */
static void *memory(size_t size) {
    void *found = calloc(1, size ? size : 1);
    if (!found) {
        complain("roost-spawner: no memory");
        _exit(70);
    }
    return found;
}

static void *more_memory(void *old, size_t size) {
    void *found = realloc(old, size);
    if (!found) {
        complain("roost-spawner: no memory");
        _exit(70);
    }
    return found;
}

static double clock_s(clockid_t which) {
    struct timespec now;
    clock_gettime(which, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* ---------------------------------------------------------------- JSON, as the server writes it: ASCII */

enum kind { NOTHING, NO, YES, WHOLE, REAL, TEXT, LIST, TABLE };

struct value {
    enum kind kind;
    bool has_zero;     /* the text */
    bool key_has_zero;
    int64_t whole;
    double real;
    char *text;
    char *key; /* of a member of a table */
    struct value *first, *next;
};

/* Everything of one frame, given back at once. */
struct portion {
    struct portion *next;
    size_t used, room;
    _Alignas(16) unsigned char bytes[];
};

struct arena {
    struct portion *portions;
};

static void *take(struct arena *arena, size_t size) {
    size = (size + 15) & ~(size_t)15;
    struct portion *portion = arena->portions;
    if (!portion || portion->room - portion->used < size) {
        size_t room = size > 16384 ? size : 16384;
        portion = memory(sizeof *portion + room);
        portion->room = room;
        portion->next = arena->portions;
        arena->portions = portion;
    }
    void *found = portion->bytes + portion->used;
    portion->used += size;
    return found;
}

static void give_back(struct arena *arena) {
    while (arena->portions) {
        struct portion *next = arena->portions->next;
        free(arena->portions);
        arena->portions = next;
    }
}

struct reader {
    const unsigned char *at, *end;
    struct arena *arena;
    int depth, values;
};

static void skip_blanks(struct reader *reader) {
    while (reader->at < reader->end && strchr(" \t\r\n", *reader->at) && *reader->at)
        reader->at++;
}

static int digit_of(unsigned char letter) {
    if (letter >= '0' && letter <= '9')
        return letter - '0';
    if (letter >= 'a' && letter <= 'f')
        return letter - 'a' + 10;
    if (letter >= 'A' && letter <= 'F')
        return letter - 'A' + 10;
    return -1;
}

/* The four digits after \u; -1: they are none. */
static int unit_of(struct reader *reader) {
    int unit = 0;
    if (reader->end - reader->at < 4)
        return -1;
    for (int index = 0; index < 4; index++) {
        int digit = digit_of(*reader->at++);
        if (digit < 0)
            return -1;
        unit = unit * 16 + digit;
    }
    return unit;
}

static bool read_text(struct reader *reader, char **text, bool *has_zero) {
    const unsigned char *end = reader->at; /* behind the first quote */
    while (end < reader->end && *end != '"')
        end += *end == '\\' ? 2 : 1;
    if (end >= reader->end)
        return false;
    /* No escape is shorter than what it stands for. */
    unsigned char *out = take(reader->arena, (size_t)(end - reader->at) + 1);
    *text = (char *)out;
    *has_zero = false;
    while (*reader->at != '"') {
        unsigned char letter = *reader->at++;
        if (letter < 0x20 || letter > 0x7e)
            return false;
        if (letter != '\\') {
            *out++ = letter;
            continue;
        }
        letter = *reader->at++;
        static const char escapes[] = "\"\\/bfnrt", plain[] = "\"\\/\b\f\n\r\t";
        if (letter != 'u') {
            const char *escape = letter ? strchr(escapes, letter) : NULL;
            if (!escape)
                return false;
            *out++ = (unsigned char)plain[escape - escapes];
            continue;
        }
        int unit = unit_of(reader);
        if (unit < 0)
            return false;
        if (unit >= 0xdc80 && unit <= 0xdcff) { /* a byte that is no UTF-8, as Python writes it */
            *out++ = (unsigned char)(unit - 0xdc00);
            continue;
        }
        unsigned long point = (unsigned long)unit;
        if (unit >= 0xd800 && unit <= 0xdfff) {
            if (unit >= 0xdc00 || reader->end - reader->at < 6 || reader->at[0] != '\\' || reader->at[1] != 'u')
                return false;
            reader->at += 2;
            int low = unit_of(reader);
            if (low < 0xdc00 || low > 0xdfff)
                return false;
            point = 0x10000 + (((unsigned long)unit - 0xd800) << 10) + ((unsigned long)low - 0xdc00);
        }
        if (point < 0x80) {
            *has_zero |= point == 0;
            *out++ = (unsigned char)point;
        } else if (point < 0x800) {
            *out++ = (unsigned char)(0xc0 | point >> 6);
            *out++ = (unsigned char)(0x80 | (point & 0x3f));
        } else if (point < 0x10000) {
            *out++ = (unsigned char)(0xe0 | point >> 12);
            *out++ = (unsigned char)(0x80 | (point >> 6 & 0x3f));
            *out++ = (unsigned char)(0x80 | (point & 0x3f));
        } else {
            *out++ = (unsigned char)(0xf0 | point >> 18);
            *out++ = (unsigned char)(0x80 | (point >> 12 & 0x3f));
            *out++ = (unsigned char)(0x80 | (point >> 6 & 0x3f));
            *out++ = (unsigned char)(0x80 | (point & 0x3f));
        }
    }
    reader->at++;
    *out = 0;
    return true;
}

static const char *skip_digits(const char *at) {
    while (isdigit((unsigned char)*at))
        at++;
    return at;
}

static bool read_number(struct reader *reader, struct value *value) {
    char digits[64];
    size_t length = 0;
    bool whole = true;
    while (reader->at < reader->end && *reader->at && strchr("+-.0123456789eE", *reader->at)) {
        if (length == sizeof digits - 1)
            return false;
        whole &= !strchr(".eE", *reader->at);
        digits[length++] = (char)*reader->at++;
    }
    digits[length] = 0;
    const char *at = digits + (digits[0] == '-');
    if (!isdigit((unsigned char)*at) || (*at == '0' && isdigit((unsigned char)at[1])))
        return false;
    at = skip_digits(at);
    if (*at == '.' && !isdigit((unsigned char)*++at))
        return false;
    at = skip_digits(at);
    if (*at == 'e' || *at == 'E') {
        at += at[1] == '+' || at[1] == '-' ? 2 : 1;
        if (!isdigit((unsigned char)*at))
            return false;
        at = skip_digits(at);
    }
    if (*at)
        return false;
    errno = 0;
    if (whole) {
        value->kind = WHOLE;
        value->whole = strtoll(digits, NULL, 10);
    } else {
        value->kind = REAL;
        value->real = strtod(digits, NULL);
    }
    return !errno;
}

static bool read_word(struct reader *reader, const char *word) {
    size_t length = strlen(word);
    if ((size_t)(reader->end - reader->at) < length || memcmp(reader->at, word, length))
        return false;
    reader->at += length;
    return true;
}

static struct value *read_value(struct reader *reader);

/* What is between brackets, behind the first of them. */
static bool read_members(struct reader *reader, struct value *value, unsigned char last, bool keys) {
    struct value **next = &value->first;
    skip_blanks(reader);
    if (reader->at < reader->end && *reader->at == last) {
        reader->at++;
        return true;
    }
    while (true) {
        char *key = NULL;
        bool zero = false;
        skip_blanks(reader);
        if (keys) {
            if (!read_word(reader, "\"") || !read_text(reader, &key, &zero))
                return false;
            skip_blanks(reader);
            if (!read_word(reader, ":"))
                return false;
        }
        struct value *member = read_value(reader);
        if (!member)
            return false;
        member->key = key;
        member->key_has_zero = zero;
        *next = member;
        next = &member->next;
        skip_blanks(reader);
        if (reader->at >= reader->end)
            return false;
        unsigned char letter = *reader->at++;
        if (letter == last)
            return true;
        if (letter != ',')
            return false;
    }
}

/* NULL: it is malformed, or too deep or too large for an order. */
static struct value *read_value(struct reader *reader) {
    skip_blanks(reader);
    if (reader->at >= reader->end || ++reader->values > MOST_VALUES)
        return NULL;
    struct value *value = take(reader->arena, sizeof *value);
    bool good = true;
    switch (*reader->at) {
    case '"':
        reader->at++;
        value->kind = TEXT;
        good = read_text(reader, &value->text, &value->has_zero);
        break;
    case '{':
    case '[': {
        bool keys = *reader->at++ == '{';
        value->kind = keys ? TABLE : LIST;
        good = ++reader->depth <= MOST_DEPTH && read_members(reader, value, keys ? '}' : ']', keys);
        reader->depth--;
        break;
    }
    case 'n':
        value->kind = NOTHING;
        good = read_word(reader, "null");
        break;
    case 't':
        value->kind = YES;
        good = read_word(reader, "true");
        break;
    case 'f':
        value->kind = NO;
        good = read_word(reader, "false");
        break;
    default:
        good = read_number(reader, value);
    }
    return good ? value : NULL;
}

static struct value *read_json(const unsigned char *data, size_t length, struct arena *arena) {
    struct reader reader = {data, data + length, arena, 0, 0};
    struct value *value = read_value(&reader);
    skip_blanks(&reader);
    return reader.at == reader.end ? value : NULL;
}

/* ---------------------------------------------------------------- orders */

struct grant {
    bool write;
    const char *path;
};

struct private {
    const char *name, *target;
};

struct limit {
    int kind;
    rlim_t value;
};

struct order {
    const char *executable, *cwd, *streams[3];
    bool append[3];
    char **argv, **env;
    mode_t umask;
    int nice;
    struct limit limits[16];
    size_t limit_count;
    bool has_account;
    uid_t uid;
    gid_t gid, *groups;
    size_t group_count;
    bool has_cores;
    unsigned char cores[1024]; /* a bit each */
    const char *cores_text;
    bool has_mounts, ipc;
    const char *scratch, *hide;
    struct private *privates;
    size_t private_count;
    int64_t shm;
    bool pid_namespace, no_new_privileges;
    bool has_landlock, all_files;
    struct grant *grants;
    size_t grant_count;
    bool has_capabilities;
    uint64_t capabilities;
    int filter; /* which one; -1: none */
    const char *unified, *freezer, *memory, **join;
    bool with_files;
    size_t join_count;
};

struct refusal {
    const char *what;
    char message[256];
};

static bool refuse(struct refusal *refusal, const char *what, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static bool refuse(struct refusal *refusal, const char *what, const char *format, ...) {
    va_list words;
    va_start(words, format);
    refusal->what = what;
    vsnprintf(refusal->message, sizeof refusal->message, format, words);
    va_end(words);
    return false;
}

/* The members of a table by their names; one that is not in the list, or there twice, is refused. Absent and null ones
 * are NULL. */
static bool spread(const struct value *table, const char *const names[], struct value *found[], const char *where,
                   struct refusal *refusal) {
    for (int index = 0; names[index]; index++)
        found[index] = NULL;
    bool seen[32] = {false};
    if (table->kind != TABLE)
        return refuse(refusal, "start", "%s: a table is expected", where);
    for (struct value *member = table->first; member; member = member->next) {
        int index = 0;
        while (names[index] && (member->key_has_zero || strcmp(names[index], member->key)))
            index++;
        if (!names[index])
            return refuse(refusal, "start", "%s: the spawner does not know %.60s", where, member->key);
        if (seen[index])
            return refuse(refusal, "start", "%s: %s twice", where, names[index]);
        seen[index] = true;
        found[index] = member->kind == NOTHING ? NULL : member;
    }
    return true;
}

static bool text_of(const struct value *value, const char **text, const char *name, struct refusal *refusal) {
    *text = "";
    if (!value)
        return true;
    if (value->kind != TEXT || value->has_zero)
        return refuse(refusal, "start", "%s: a text without zero bytes is expected", name);
    *text = value->text;
    return true;
}

static bool flag_of(const struct value *value, bool *flag, const char *name, struct refusal *refusal) {
    *flag = value && value->kind == YES;
    if (value && value->kind != YES && value->kind != NO)
        return refuse(refusal, "start", "%s: true or false is expected", name);
    return true;
}

static bool whole_of(const struct value *value, int64_t least, int64_t most, int64_t *whole, const char *name,
                     struct refusal *refusal) {
    if (!value)
        return true;
    if (value->kind != WHOLE || value->whole < least || value->whole > most)
        return refuse(refusal, "start", "%s: a whole number from %lld to %lld is expected", name, (long long)least,
                      (long long)most);
    *whole = value->whole;
    return true;
}

static bool list_of(const struct value *value, size_t *count, const char *name, struct refusal *refusal) {
    *count = 0;
    if (!value)
        return true;
    if (value->kind != LIST)
        return refuse(refusal, "start", "%s: a list is expected", name);
    for (struct value *member = value->first; member; member = member->next)
        ++*count;
    return true;
}

static bool command_of(const struct value *argv, const struct value *env, struct order *order, struct arena *arena,
                       struct refusal *refusal) {
    size_t count = 0, index = 0;
    if (!argv || !env || env->kind != TABLE)
        return refuse(refusal, "start", "argv, a list, and env, a table, are expected");
    if (!list_of(argv, &count, "argv", refusal))
        return false;
    order->argv = take(arena, (count + 1) * sizeof *order->argv);
    for (struct value *word = argv->first; word; word = word->next) {
        if (word->kind != TEXT)
            return refuse(refusal, "start", "argv: texts are expected");
        if (word->has_zero)
            return refuse(refusal, "exec", "%s: embedded null byte", order->executable);
        order->argv[index++] = word->text;
    }
    if (!count || !*order->argv[0])
        return refuse(refusal, "exec", "%s: the first argument, the program's name, must not be empty",
                      order->executable);
    count = index = 0;
    for (struct value *member = env->first; member; member = member->next)
        count++;
    order->env = take(arena, (count + 1) * sizeof *order->env);
    for (struct value *member = env->first; member; member = member->next) {
        if (member->kind != TEXT)
            return refuse(refusal, "start", "env: texts are expected");
        if (member->has_zero || member->key_has_zero)
            return refuse(refusal, "exec", "%s: embedded null byte", order->executable);
        if (strchr(member->key, '='))
            return refuse(refusal, "exec", "%s: illegal environment variable name", order->executable);
        size_t name = strlen(member->key), length = strlen(member->text);
        char *pair = take(arena, name + length + 2);
        memcpy(pair, member->key, name);
        pair[name] = '=';
        memcpy(pair + name + 1, member->text, length + 1);
        order->env[index++] = pair;
    }
    return true;
}

static const struct {
    const char *name;
    int kind;
} LIMITS[] = {
    {"RLIMIT_AS", RLIMIT_AS},           {"RLIMIT_CORE", RLIMIT_CORE},
    {"RLIMIT_CPU", RLIMIT_CPU},         {"RLIMIT_DATA", RLIMIT_DATA},
    {"RLIMIT_FSIZE", RLIMIT_FSIZE},     {"RLIMIT_MEMLOCK", RLIMIT_MEMLOCK},
    {"RLIMIT_MSGQUEUE", RLIMIT_MSGQUEUE}, {"RLIMIT_NICE", RLIMIT_NICE},
    {"RLIMIT_NOFILE", RLIMIT_NOFILE},   {"RLIMIT_NPROC", RLIMIT_NPROC},
    {"RLIMIT_RSS", RLIMIT_RSS},         {"RLIMIT_RTPRIO", RLIMIT_RTPRIO},
    {"RLIMIT_SIGPENDING", RLIMIT_SIGPENDING}, {"RLIMIT_STACK", RLIMIT_STACK},
};

static bool limits_of(const struct value *table, struct order *order, struct refusal *refusal) {
    if (!table)
        return true;
    if (table->kind != TABLE)
        return refuse(refusal, "start", "limits: a table is expected");
    for (struct value *member = table->first; member; member = member->next) {
        size_t index = 0, count = sizeof LIMITS / sizeof *LIMITS;
        while (index < count && (member->key_has_zero || strcmp(LIMITS[index].name, member->key)))
            index++;
        if (index == count || order->limit_count == sizeof order->limits / sizeof *order->limits)
            return refuse(refusal, "start", "limits: the spawner does not know %.60s", member->key);
        int64_t value = 0;
        if (member->kind == NOTHING || !whole_of(member, -1, INT64_MAX, &value, member->key, refusal))
            return member->kind == NOTHING ? refuse(refusal, "start", "limits: a number is expected") : false;
        order->limits[order->limit_count++] =
            (struct limit){LIMITS[index].kind, value == -1 ? RLIM_INFINITY : (rlim_t)value};
    }
    return true;
}

static bool account_of(const struct value *table, struct order *order, struct arena *arena, struct refusal *refusal) {
    static const char *const names[] = {"uid", "gid", "groups", NULL};
    struct value *found[3];
    if (!table)
        return true;
    int64_t uid = -1, gid = -1, group = -1;
    if (!spread(table, names, found, "account", refusal) ||
        !whole_of(found[0], 0, UINT32_MAX - 1, &uid, "uid", refusal) ||
        !whole_of(found[1], 0, UINT32_MAX - 1, &gid, "gid", refusal) ||
        !list_of(found[2], &order->group_count, "groups", refusal))
        return false;
    if (!found[0] || !found[1] || !found[2])
        return refuse(refusal, "start", "account: uid, gid and groups are expected");
    order->has_account = true;
    order->uid = (uid_t)uid;
    order->gid = (gid_t)gid;
    order->groups = take(arena, order->group_count * sizeof *order->groups);
    size_t index = 0;
    for (struct value *member = found[2]->first; member; member = member->next) {
        if (member->kind != WHOLE || !whole_of(member, 0, UINT32_MAX - 1, &group, "groups", refusal))
            return refuse(refusal, "start", "groups: numbers are expected");
        order->groups[index++] = (gid_t)group;
    }
    return true;
}

static bool cores_of(const struct value *list, struct order *order, struct arena *arena, struct refusal *refusal) {
    size_t count;
    if (!list)
        return true;
    if (!list_of(list, &count, "cores", refusal))
        return false;
    order->has_cores = true;
    char *text = take(arena, count * 22 + 3), *end = text;
    *end++ = '[';
    bool past = false;
    for (struct value *member = list->first; member; member = member->next) {
        if (member->kind != WHOLE)
            return refuse(refusal, "start", "cores: whole numbers are expected");
        end += sprintf(end, "%s%lld", member == list->first ? "" : ", ", (long long)member->whole);
        if (member->whole < 0 || member->whole >= (int64_t)sizeof order->cores * 8)
            past = true;
        else
            order->cores[member->whole / 8] |= (unsigned char)(1u << member->whole % 8);
    }
    strcpy(end, "]");
    order->cores_text = text;
    return past ? refuse(refusal, "cores", "cores %.80s: %s", text, strerror(EINVAL)) : true;
}

static bool mounts_of(const struct value *table, struct order *order, struct arena *arena, struct refusal *refusal) {
    static const char *const names[] = {"scratch", "hide", "private", "shm", "ipc", NULL};
    struct value *found[5];
    if (!table)
        return true;
    order->has_mounts = true;
    if (!spread(table, names, found, "mounts", refusal) || !text_of(found[0], &order->scratch, "scratch", refusal) ||
        !text_of(found[1], &order->hide, "hide", refusal) ||
        !list_of(found[2], &order->private_count, "private", refusal) ||
        !whole_of(found[3], 0, INT64_MAX, &order->shm, "shm", refusal) ||
        !flag_of(found[4], &order->ipc, "ipc", refusal))
        return false;
    order->privates = take(arena, order->private_count * sizeof *order->privates);
    size_t index = 0;
    for (struct value *pair = found[2] ? found[2]->first : NULL; pair; pair = pair->next, index++) {
        struct value *name = pair->kind == LIST ? pair->first : NULL, *target = name ? name->next : NULL;
        if (!target || target->next || name->kind != TEXT || target->kind != TEXT)
            return refuse(refusal, "start", "private: pairs of texts are expected");
        if (!text_of(name, &order->privates[index].name, "private", refusal) ||
            !text_of(target, &order->privates[index].target, "private", refusal))
            return false;
    }
    if (order->private_count && !*order->scratch)
        return refuse(refusal, "start", "private: there is no scratch");
    return true;
}

static bool landlock_of(const struct value *table, struct order *order, struct arena *arena,
                        struct refusal *refusal) {
    static const char *const names[] = {"grants", NULL};
    struct value *found[1];
    if (!table)
        return true;
    order->has_landlock = true;
    if (!spread(table, names, found, "landlock", refusal) ||
        !list_of(found[0], &order->grant_count, "grants", refusal))
        return false;
    if (!table->first)
        return refuse(refusal, "start", "landlock: grants are expected");
    order->all_files = !found[0];
    order->grants = take(arena, order->grant_count * sizeof *order->grants);
    size_t index = 0;
    for (struct value *pair = found[0] ? found[0]->first : NULL; pair; pair = pair->next, index++) {
        struct value *use = pair->kind == LIST ? pair->first : NULL, *path = use ? use->next : NULL;
        const char *how;
        if (!path || path->next || use->kind != TEXT || path->kind != TEXT)
            return refuse(refusal, "start", "grants: pairs of texts are expected");
        if (!text_of(use, &how, "grants", refusal) ||
            !text_of(path, &order->grants[index].path, "grants", refusal))
            return false;
        if (strcmp(how, "r") && strcmp(how, "w"))
            return refuse(refusal, "start", "grants: r or w is expected");
        order->grants[index].write = *how == 'w';
    }
    return true;
}

static bool filter_of(const struct value *table, struct order *order, struct refusal *refusal) {
    static const char *const names[] = {"namespaces", "others", NULL};
    struct value *found[2];
    bool namespaces, others;
    order->filter = -1;
    if (!table)
        return true;
    if (!spread(table, names, found, "seccomp", refusal) ||
        !flag_of(found[0], &namespaces, "namespaces", refusal) || !flag_of(found[1], &others, "others", refusal))
        return false;
    if (!found[0] || !found[1])
        return refuse(refusal, "start", "seccomp: namespaces and others are expected");
    order->filter = (namespaces ? 1 : 0) + (others ? 2 : 0);
    return true;
}

static bool cgroup_of(const struct value *table, struct order *order, struct arena *arena, struct refusal *refusal) {
    static const char *const names[] = {"unified", "freezer", "memory", "join", "with_files", NULL};
    struct value *found[5] = {NULL};
    order->unified = order->freezer = order->memory = "";
    if (!table)
        return true;
    if (!spread(table, names, found, "cgroup", refusal) || !text_of(found[0], &order->unified, "unified", refusal) ||
        !text_of(found[1], &order->freezer, "freezer", refusal) ||
        !text_of(found[2], &order->memory, "memory", refusal) ||
        !list_of(found[3], &order->join_count, "join", refusal) ||
        !flag_of(found[4], &order->with_files, "with_files", refusal))
        return false;
    order->join = take(arena, order->join_count * sizeof *order->join);
    size_t index = 0;
    for (struct value *folder = found[3] ? found[3]->first : NULL; folder; folder = folder->next)
        if (folder->kind != TEXT || !text_of(folder, &order->join[index++], "join", refusal))
            return refuse(refusal, "start", "join: texts are expected");
    return true;
}

/* What a run is asked for. False: nothing may be started, and refusal says why. */
static bool read_order(const struct value *asked, struct order *order, struct arena *arena, struct refusal *refusal) {
    enum {
        EXECUTABLE, ARGV, ENV, CWD, STDIN, STDOUT, STDERR, APPEND_OUT, APPEND_ERR, UMASK, NICE, LIMIT, ACCOUNT, CORES,
        MOUNTS, PID_NAMESPACE, LANDLOCK, CAPABILITIES, NO_NEW_PRIVILEGES, SECCOMP, CGROUP,
        OP, RUN, DEDICATED, TRACKING_GID, GROUP, LEASE, COUNT
    };
    static const char *const names[] = {
        "executable", "argv", "env", "cwd", "stdin", "stdout", "stderr", "append_stdout", "append_stderr", "umask",
        "nice", "limits", "account", "cores", "mounts", "pid_namespace", "landlock", "capabilities",
        "no_new_privileges", "seccomp", "cgroup",
        "op", "run", "dedicated", "tracking_gid", "group", "lease", /* these the server obeys */
        NULL};
    struct value *found[COUNT];
    int64_t umask = 022, nice = 0, capabilities = 0;
    memset(order, 0, sizeof *order);
    order->scratch = order->hide = "";
    if (!spread(asked, names, found, "order", refusal))
        return false;
    const struct value *executable = found[EXECUTABLE];
    if (executable && executable->kind == TEXT && executable->has_zero)
        return refuse(refusal, "exec", "%.200s: embedded null byte", executable->text);
    if (!text_of(executable, &order->executable, "executable", refusal) ||
        !command_of(found[ARGV], found[ENV], order, arena, refusal) ||
        !text_of(found[CWD], &order->cwd, "cwd", refusal) ||
        !text_of(found[STDIN], &order->streams[0], "stdin", refusal) ||
        !text_of(found[STDOUT], &order->streams[1], "stdout", refusal) ||
        !text_of(found[STDERR], &order->streams[2], "stderr", refusal) ||
        !flag_of(found[APPEND_OUT], &order->append[1], "append_stdout", refusal) ||
        !flag_of(found[APPEND_ERR], &order->append[2], "append_stderr", refusal) ||
        !whole_of(found[UMASK], 0, 0777, &umask, "umask", refusal) ||
        !whole_of(found[NICE], -40, 40, &nice, "nice", refusal) || !limits_of(found[LIMIT], order, refusal) ||
        !account_of(found[ACCOUNT], order, arena, refusal) || !cores_of(found[CORES], order, arena, refusal) ||
        !mounts_of(found[MOUNTS], order, arena, refusal) ||
        !flag_of(found[PID_NAMESPACE], &order->pid_namespace, "pid_namespace", refusal) ||
        !landlock_of(found[LANDLOCK], order, arena, refusal) ||
        !whole_of(found[CAPABILITIES], 0, INT64_MAX, &capabilities, "capabilities", refusal) ||
        !flag_of(found[NO_NEW_PRIVILEGES], &order->no_new_privileges, "no_new_privileges", refusal) ||
        !filter_of(found[SECCOMP], order, refusal) || !cgroup_of(found[CGROUP], order, arena, refusal))
        return false;
    order->umask = (mode_t)umask;
    order->nice = (int)nice;
    order->has_capabilities = found[CAPABILITIES] != NULL;
    order->capabilities = (uint64_t)capabilities;
    return true;
}

/* ---------------------------------------------------------------- frames: 4 bytes length (big endian), then JSON */

struct frames {
    unsigned char *data;
    size_t used, room;
};

static void add_to(struct frames *frames, const unsigned char *data, size_t length) {
    if (frames->room - frames->used < length) {
        frames->room = (frames->used + length) * 2;
        frames->data = more_memory(frames->data, frames->room);
    }
    memcpy(frames->data + frames->used, data, length);
    frames->used += length;
}

static size_t frame_length(const struct frames *frames) {
    const unsigned char *data = frames->data;
    return (size_t)data[0] << 24 | (size_t)data[1] << 16 | (size_t)data[2] << 8 | data[3];
}

/* 1: there is a whole frame; 0: not yet; -1: this is no stream of frames. */
static int has_frame(const struct frames *frames) {
    if (frames->used < 4)
        return 0;
    if (frame_length(frames) > MOST_FRAME)
        return -1;
    return frames->used >= 4 + frame_length(frames);
}

static void drop_frame(struct frames *frames) {
    size_t length = 4 + frame_length(frames);
    frames->used -= length;
    memmove(frames->data, frames->data + length, frames->used);
}

static void send_frame(const char *text, size_t length) {
    unsigned char head[4] = {(unsigned char)(length >> 24), (unsigned char)(length >> 16),
                             (unsigned char)(length >> 8), (unsigned char)length};
    char data[16384];
    if (length > sizeof data - 4)
        return;
    memcpy(data, head, 4);
    memcpy(data + 4, text, length);
    length += 4;
    for (size_t sent = 0; sent < length;) {
        ssize_t count = send(CHANNEL, data + sent, length - sent, MSG_NOSIGNAL);
        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0)
            return; /* the server is gone */
        sent += (size_t)count;
    }
}

/* A text as JSON has it. What is no UTF-8 becomes what Python makes of such bytes. */
static size_t quote(char *out, size_t room, const char *text) {
    char *at = out, *end = out + room - 16;
    *at++ = '"';
    const unsigned char *in = (const unsigned char *)text;
    while (*in && at < end) {
        unsigned long point = *in;
        int more = point < 0x80 ? 0 : point >= 0xc2 && point < 0xe0 ? 1 : (point & 0xf0) == 0xe0 ? 2
                   : point >= 0xf0 && point < 0xf5 ? 3 : -1;
        unsigned long whole = more == 1 ? point & 0x1f : more == 2 ? point & 0x0f : more == 3 ? point & 0x07 : point;
        for (int index = 1; more > 0 && index <= more; index++) {
            if ((in[index] & 0xc0) != 0x80)
                more = -1;
            else
                whole = whole << 6 | (in[index] & 0x3f);
        }
        if (more == 2 && (whole < 0x800 || (whole >= 0xd800 && whole < 0xe000)))
            more = -1;
        if (more == 3 && (whole < 0x10000 || whole > 0x10ffff))
            more = -1;
        if (more < 0) {
            at += sprintf(at, "\\udc%02x", *in++);
            continue;
        }
        in += more + 1;
        if (whole == '"' || whole == '\\')
            at += sprintf(at, "\\%c", (int)whole);
        else if (whole >= 0x20 && whole < 0x7f)
            *at++ = (char)whole;
        else if (whole < 0x10000)
            at += sprintf(at, "\\u%04lx", whole);
        else
            at += sprintf(at, "\\u%04lx\\u%04lx", 0xd800 + ((whole - 0x10000) >> 10), 0xdc00 + (whole & 0x3ff));
    }
    *at++ = '"';
    *at = 0;
    return (size_t)(at - out);
}

static void say_failed(const char *what, int number, const char *message) {
    char text[8192], quoted[7000];
    quote(quoted, sizeof quoted, message);
    int length = snprintf(text, sizeof text, "{\"op\":\"failed\",\"errno\":%d,\"what\":\"%s\",\"message\":%s}", number,
                          what, quoted);
    send_frame(text, (size_t)length);
}

/* ---------------------------------------------------------------- files */

/* The text of a small file, with a zero behind it; -1: it can not be read. */
static ssize_t read_file(const char *folder, const char *name, char *text, size_t room) {
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path)
        return -1;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return -1;
    ssize_t length = 0, count;
    while ((size_t)length < room - 1 && (count = read(file, text + length, room - 1 - (size_t)length)) != 0) {
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0) {
            int number = errno;
            close(file);
            errno = number;
            return -1;
        }
        length += count;
    }
    close(file);
    text[length] = 0;
    return length;
}

static bool write_file(const char *folder, const char *name, const char *text) {
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path) {
        errno = ENAMETOOLONG;
        return false;
    }
    int file = open(path, O_WRONLY | O_CLOEXEC);
    if (file < 0)
        return false;
    bool good = write(file, text, strlen(text)) >= 0;
    int number = errno;
    close(file);
    errno = number;
    return good;
}

/* Of `name number` lines; otherwise: there is no such line. */
static int64_t field(const char *text, const char *name, int64_t otherwise) {
    size_t length = strlen(name);
    for (const char *line = text; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL)
        if (!strncmp(line, name, length) && line[length] == ' ' && isdigit((unsigned char)line[length + 1]))
            return strtoll(line + length + 1, NULL, 10);
    return otherwise;
}

static int64_t number_in(const char *folder, const char *name) {
    char text[64], *end;
    if (read_file(folder, name, text, sizeof text) <= 0 || !isdigit((unsigned char)*text))
        return -1;
    int64_t found = strtoll(text, &end, 10);
    return *end == '\n' || !*end ? found : -1;
}

/* ---------------------------------------------------------------- trees of processes */

struct pids {
    pid_t *at;
    size_t count, room;
};

static void add_pid(struct pids *pids, pid_t pid) {
    if (pid <= 0)
        return; /* of another PID namespace: to kill(), it would be all of our group */
    if (pids->count == pids->room) {
        pids->room = pids->room ? pids->room * 2 : 64;
        pids->at = more_memory(pids->at, pids->room * sizeof *pids->at);
    }
    pids->at[pids->count++] = pid;
}

/* Which numbers were seen, a bit each. */
struct seen {
    unsigned char *bits;
    size_t size;
};

static bool is_new(struct seen *seen, pid_t pid) {
    size_t byte = (size_t)pid / 8;
    unsigned char bit = (unsigned char)(1u << pid % 8);
    if (byte >= seen->size) {
        size_t size = byte + 4096;
        seen->bits = more_memory(seen->bits, size);
        memset(seen->bits + seen->size, 0, size - seen->size);
        seen->size = size;
    }
    if (seen->bits[byte] & bit)
        return false;
    seen->bits[byte] |= bit;
    return true;
}

static void add_words(struct pids *pids, int file) {
    char text[4096];
    long number = -1;
    ssize_t count;
    while ((count = read(file, text, sizeof text)) > 0)
        for (ssize_t index = 0; index < count; index++) {
            if (isdigit((unsigned char)text[index]) && number < INT_MAX / 10)
                number = (number < 0 ? 0 : number * 10) + (text[index] - '0');
            else if (number >= 0) {
                add_pid(pids, (pid_t)number);
                number = -1;
            }
        }
    if (number >= 0)
        add_pid(pids, (pid_t)number);
}

/* For kernels without CONFIG_PROC_CHILDREN. */
static void add_children_by_scan(struct pids *pids, pid_t parent) {
    DIR *all = opendir("/proc");
    struct dirent *entry;
    while (all && (entry = readdir(all))) {
        char folder[64], text[1024];
        if (!isdigit((unsigned char)entry->d_name[0]))
            continue;
        snprintf(folder, sizeof folder, "/proc/%.20s", entry->d_name);
        if (read_file(folder, "stat", text, sizeof text) <= 0)
            continue;
        const char *rest = strrchr(text, ')'); /* the name before it may hold anything */
        int its_parent;
        if (rest && sscanf(rest + 1, " %*c %d", &its_parent) == 1 && its_parent == parent)
            add_pid(pids, atoi(entry->d_name));
    }
    if (all)
        closedir(all);
}

static void add_children(struct pids *pids, pid_t parent) {
    char path[320];
    size_t before = pids->count;
    snprintf(path, sizeof path, "/proc/%d/task", parent);
    DIR *tasks = opendir(path);
    if (!tasks)
        return;
    struct dirent *entry;
    while ((entry = readdir(tasks))) {
        if (!isdigit((unsigned char)entry->d_name[0]))
            continue;
        snprintf(path, sizeof path, "/proc/%d/task/%.255s/children", parent, entry->d_name);
        int file = open(path, O_RDONLY | O_CLOEXEC);
        if (file < 0) {
            if (errno == ENOENT) {
                pids->count = before;
                add_children_by_scan(pids, parent);
            }
            break;
        }
        add_words(pids, file);
        close(file);
    }
    closedir(tasks);
}

/* All below a process. Whoever calls frees the list. */
static struct pids descendants_of(pid_t pid) {
    struct pids found = {NULL, 0, 0};
    add_children(&found, pid);
    for (size_t index = 0; index < found.count; index++)
        add_children(&found, found.at[index]);
    return found;
}

/* One round: what was forked meanwhile is for the next. Stopping them all first leaves few who could. */
static void kill_descendants(pid_t pid) {
    struct pids family = {NULL, 0, 0};
    struct seen seen = {NULL, 0};
    for (int round = 0; round < STOP_ROUNDS; round++) {
        struct pids now = descendants_of(pid);
        size_t before = family.count;
        for (size_t index = 0; index < now.count; index++)
            if (is_new(&seen, now.at[index])) {
                add_pid(&family, now.at[index]);
                kill(now.at[index], SIGSTOP);
            }
        free(now.at);
        if (family.count == before)
            break;
    }
    for (size_t index = 0; index < family.count; index++)
        kill(family.at[index], SIGKILL);
    free(family.at);
    free(seen.bits);
}

/* All of them; again those that were forked meanwhile. */
static void signal_descendants(pid_t pid, int number) {
    struct seen told_already = {NULL, 0};
    for (bool fresh = true; fresh;) {
        struct pids now = descendants_of(pid);
        fresh = false;
        for (size_t index = 0; index < now.count; index++)
            if (is_new(&told_already, now.at[index])) {
                fresh = true;
                kill(now.at[index], number);
            }
        free(now.at);
    }
    free(told_already.bits);
}

/* What a process has for itself and its share of what it has in common with others (PSS), KiB. */
static int64_t memory_of(pid_t pid) {
    char folder[64], text[4096];
    snprintf(folder, sizeof folder, "/proc/%d", pid);
    if (read_file(folder, "smaps_rollup", text, sizeof text) > 0) {
        const char *line = strstr(text, "\nPss:");
        if (line)
            return strtoll(line + 5, NULL, 10);
    }
    long long size, resident;
    if (read_file(folder, "statm", text, sizeof text) > 0 && sscanf(text, "%lld %lld", &size, &resident) == 2)
        return resident * (sysconf(_SC_PAGESIZE) / 1024);
    return 0;
}

/* ---------------------------------------------------------------- cgroups */

static struct {
    const char *unified, *freezer, *memory, **join;
    size_t join_count;
    int counter;         /* eventfd of version 1: how often the job hit its own limit; -1: none */
    int events;          /* memory.events of version 2; -1: none */
    int64_t oom, killed; /* the counters before the job */
    int64_t former_peak; /* of version 2: bytes, by jobs that were in it before this one */
    bool born, used_up, own;
    bool with_files; /* what the kernel keeps of files counts as memory */
    int uneasy; /* so many more looks at the counters are due: the limit was hit, and nobody killed yet */
} cgroup;

static int64_t cgroup_peak(void) {
    int64_t peak = *cgroup.memory ? number_in(cgroup.memory, "memory.max_usage_in_bytes")
                                  : number_in(cgroup.unified, "memory.peak");
    return peak < 0 ? 0 : peak; /* memory.peak is of Linux 5.19 */
}

static void cgroup_counters(int64_t *oom, int64_t *killed) {
    char text[4096];
    ssize_t length = -1;
    *oom = *killed = 0;
    if (cgroup.events >= 0)
        length = pread(cgroup.events, text, sizeof text - 1, 0);
    else if (*cgroup.memory)
        length = read_file(cgroup.memory, "memory.oom_control", text, sizeof text);
    if (length <= 0)
        return;
    text[length] = 0;
    *oom = field(text, "oom", 0);
    *killed = field(text, "oom_kill", 0);
}

static void cgroup_watch(const struct order *order) {
    cgroup.unified = order->unified;
    cgroup.freezer = order->freezer;
    cgroup.memory = order->memory;
    cgroup.join = order->join;
    cgroup.join_count = order->join_count;
    cgroup.with_files = order->with_files;
    cgroup.counter = cgroup.events = -1;
    char path[PATH_MAX];
    if (*cgroup.memory) {
        cgroup_counters(&cgroup.oom, &cgroup.killed);
        if (!write_file(cgroup.memory, "memory.max_usage_in_bytes", "0") ||
            snprintf(path, sizeof path, "%s/memory.oom_control", cgroup.memory) >= (int)sizeof path)
            return;
        int control = open(path, O_RDONLY | O_CLOEXEC);
        int counter = control < 0 ? -1 : eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        snprintf(path, sizeof path, "%d %d", counter, control);
        if (counter >= 0 && write_file(cgroup.memory, "cgroup.event_control", path))
            cgroup.counter = counter; /* without it an end for lack of memory counts as the machine's */
        else if (counter >= 0)
            close(counter);
        if (control >= 0)
            close(control);
    } else if (*cgroup.unified) {
        cgroup.former_peak = cgroup_peak();
        if (snprintf(path, sizeof path, "%s/memory.events", cgroup.unified) < (int)sizeof path)
            cgroup.events = open(path, O_RDONLY | O_CLOEXEC);
        if (cgroup.events >= 0) /* else there is no memory controller */
            cgroup_counters(&cgroup.oom, &cgroup.killed);
    }
}

/* Whether the most that this job held at a time will be known in the end. */
static bool cgroup_tells_peak(void) {
    char path[PATH_MAX];
    if (cgroup.former_peak || !(*cgroup.memory || *cgroup.unified))
        return false;
    const char *folder = *cgroup.memory ? cgroup.memory : cgroup.unified;
    const char *name = *cgroup.memory ? "memory.max_usage_in_bytes" : "memory.peak";
    return snprintf(path, sizeof path, "%s/%s", folder, name) < (int)sizeof path && !access(path, F_OK);
}

/* The cgroup's peak, less the files it holds now where these do not count, KiB; 0: not known. */
static int64_t cgroup_resident_peak(void) {
    char text[8192];
    int64_t peak = *cgroup.memory || *cgroup.unified ? cgroup_peak() : 0;
    if (peak <= cgroup.former_peak ||
        read_file(*cgroup.memory ? cgroup.memory : cgroup.unified, "memory.stat", text, sizeof text) < 0)
        return 0;
    int64_t files = field(text, "total_cache", field(text, "file", 0)) -
                    field(text, "total_shmem", field(text, "shmem", 0));
    peak -= files > 0 && !cgroup.with_files ? files : 0;
    return peak > 0 ? peak / 1024 : 0;
}

static struct {
    bool happened, own;
    int64_t killed, peak;
} out_of_memory;

/* Version 1 tells a cgroup, too, that one above it has no memory left. */
static bool cgroup_was_full(void) {
    int64_t limit = *cgroup.memory ? number_in(cgroup.memory, "memory.limit_in_bytes") : -1;
    return limit < 0 || (double)cgroup_peak() >= (double)limit * FULL;
}

/* Whether processes of this job were killed for lack of memory. */
static bool cgroup_out_of_memory(void) {
    int64_t oom, killed;
    uint64_t times;
    cgroup_counters(&oom, &killed);
    cgroup.own |= oom > cgroup.oom;
    if (cgroup.uneasy)
        cgroup.uneasy--;
    if (cgroup.counter >= 0 && read(cgroup.counter, &times, sizeof times) == sizeof times) {
        cgroup.own = true; /* version 1 tells before it kills */
        cgroup.uneasy = UNEASY_LOOKS;
    }
    if (killed <= cgroup.killed)
        return false;
    cgroup.uneasy = 0;
    out_of_memory.happened = true;
    out_of_memory.killed = killed - cgroup.killed;
    out_of_memory.own = cgroup.own && cgroup_was_full();
    out_of_memory.peak = cgroup_peak();
    return true;
}

static bool cgroup_freeze(bool frozen) {
    if (*cgroup.unified)
        return write_file(cgroup.unified, "cgroup.freeze", frozen ? "1" : "0");
    if (*cgroup.freezer)
        return write_file(cgroup.freezer, "freezer.state", frozen ? "FROZEN" : "THAWED");
    return false;
}

static bool cgroup_at_rest(void) {
    char text[4096];
    if (*cgroup.unified)
        return read_file(cgroup.unified, "cgroup.events", text, sizeof text) > 0 && field(text, "frozen", 0) == 1;
    return read_file(cgroup.freezer, "freezer.state", text, sizeof text) > 0 && !strcmp(text, "FROZEN\n");
}

static bool cgroup_kill_frozen(const char *folder) {
    char path[PATH_MAX];
    if (!cgroup_freeze(true))
        return false;
    for (int round = 0; round < FREEZE_ROUNDS && !cgroup_at_rest(); round++)
        usleep(FREEZE_ROUND_US);
    struct pids pids = {NULL, 0, 0};
    int file = -1;
    if (snprintf(path, sizeof path, "%s/cgroup.procs", folder) < (int)sizeof path)
        file = open(path, O_RDONLY | O_CLOEXEC);
    if (file >= 0) {
        add_words(&pids, file);
        close(file);
    }
    for (size_t index = 0; index < pids.count; index++)
        kill(pids.at[index], SIGKILL);
    free(pids.at);
    cgroup_freeze(false);
    return file >= 0;
}

/* SIGKILL to everything in it, and nothing can fork its way out; false when it can not. */
static bool cgroup_kill(void) {
    if (*cgroup.unified) {
        /* Linux 6.18, for one, kills at once whatever is born into a cgroup that was killed ever before. */
        cgroup.used_up = true;
        return write_file(cgroup.unified, "cgroup.kill", "1") || cgroup_kill_frozen(cgroup.unified);
    }
    return *cgroup.freezer && cgroup_kill_frozen(cgroup.freezer);
}

/* fork(), with a PID namespace where one is wanted; where the kernel can, of a process that is born in the cgroup. */
static pid_t cgroup_fork(bool inside) {
    unsigned long flags = inside ? CLONE_NEWPID : 0;
    if (*cgroup.unified) {
        struct {
            uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls, set_tid, set_tid_size,
                cgroup;
        } arguments;
        memset(&arguments, 0, sizeof arguments);
        int folder = open(cgroup.unified, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (folder < 0)
            return -1;
        arguments.flags = flags | CLONE_INTO_CGROUP;
        arguments.exit_signal = SIGCHLD;
        arguments.cgroup = (uint64_t)folder;
        cgroup.born = true; /* in the child, too */
        pid_t pid = (pid_t)syscall(CALL_CLONE3, &arguments, sizeof arguments);
        int number = errno;
        if (pid == 0)
            return 0;
        close(folder);
        errno = number;
        if (pid > 0 || errno == ENOENT || errno == EAGAIN || errno == ENOMEM)
            return pid;
        cgroup.born = false;
    }
    return (pid_t)syscall(SYS_clone, flags | SIGCHLD, 0, 0, 0, 0);
}

/* ---------------------------------------------------------------- the job's own process, before it is the job */

/* From the job's process, or the init of its namespace, to the nanny. The kernel says whose it is. */
struct note {
    enum { PID, BEGUN, FAILED, ENDED } kind;
    int number; /* errno, or status */
    char what[16], message[1024];
};

static int above = -1;

static void send_note(const struct note *note) {
    size_t length = note->kind == FAILED ? sizeof *note : offsetof(struct note, what);
    while (send(above, note, length, MSG_NOSIGNAL) < 0 && errno == EINTR)
        continue;
}

static void give_up(const char *what, int number, const char *format, ...)
    __attribute__((noreturn, format(printf, 3, 4)));

static void give_up(const char *what, int number, const char *format, ...) {
    struct note note;
    va_list words;
    memset(&note, 0, sizeof note);
    note.kind = FAILED;
    note.number = number;
    snprintf(note.what, sizeof note.what, "%s", what);
    va_start(words, format);
    vsnprintf(note.message, sizeof note.message, format, words);
    va_end(words);
    send_note(&note);
    _exit(127);
}

static void must(bool good, const char *what, const char *call) {
    if (!good) {
        int number = errno;
        give_up(what, number, "%s: %s", call, strerror(number));
    }
}

static void put(const char *source, const char *target, const char *kind, unsigned long flags, const char *options) {
    if (mount(source, target, kind, flags, options)) {
        int number = errno;
        give_up("walls", number, "mount %s on %s: %s", source, target, strerror(number));
    }
}

/* Makes what of the path is not there below one of its directories, and opens it. The job may have put files there, so
 * no link is followed: through one, root would make directories, and put the job's files, anywhere. */
static int open_below(const char *above_it, const char *path) {
    char rest[PATH_MAX], *saved = NULL;
    if (strlen(path) >= sizeof rest)
        give_up("walls", ENAMETOOLONG, "%s: %s", path, strerror(ENAMETOOLONG));
    strcpy(rest, path + strlen(above_it));
    int folder = open(above_it, O_PATH | O_DIRECTORY | O_CLOEXEC);
    must(folder >= 0, "walls", above_it);
    for (char *part = strtok_r(rest, "/", &saved); part; part = strtok_r(NULL, "/", &saved)) {
        must(!mkdirat(folder, part, 0755) || errno == EEXIST, "walls", path);
        int next = openat(folder, part, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        must(next >= 0, "walls", path);
        close(folder);
        folder = next;
    }
    return folder;
}

/* Whether the target is the scratch directory, or one that it is in. */
static bool covers(const char *target, const char *scratch) {
    size_t length = strlen(target);
    while (length && target[length - 1] == '/')
        length--;
    return !strncmp(target, scratch, length) && (scratch[length] == '/' || !scratch[length]);
}

static void arrange(const struct order *order) {
    char path[PATH_MAX], place[64];
    int own = -1;
    const char *cover = NULL; /* a directory that the scratch directory is in, and that is the job's own by now */
    struct stat found;
    if (*order->scratch) {
        own = open(order->scratch, O_PATH | O_CLOEXEC);
        must(own >= 0, "walls", order->scratch);
    }
    for (size_t index = 0; index < order->private_count; index++) {
        const char *target = order->privates[index].target;
        /* The scratch directory may lie in one that is covered by now. */
        if (snprintf(path, sizeof path, "/proc/self/fd/%d/%s", own, order->privates[index].name) >= (int)sizeof path)
            give_up("walls", ENAMETOOLONG, "%s: %s", target, strerror(ENAMETOOLONG));
        put(path, target, NULL, MS_BIND, NULL);
        if (covers(target, order->scratch))
            cover = target;
    }
    if (*order->scratch && !cover && *order->hide) {
        put("none", order->hide, "tmpfs", MS_NOSUID | MS_NODEV, "mode=755,size=64k");
        cover = order->hide;
    }
    if (cover) {
        int there = open_below(cover, order->scratch);
        snprintf(path, sizeof path, "/proc/self/fd/%d", own);
        snprintf(place, sizeof place, "/proc/self/fd/%d", there);
        put(path, place, NULL, MS_BIND | MS_REC, NULL);
        close(there);
    }
    if (order->shm > 0 && !stat("/dev/shm", &found) && S_ISDIR(found.st_mode)) {
        snprintf(path, sizeof path, "mode=1777,size=%lld", (long long)order->shm);
        put("none", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, path);
    }
    if (own >= 0)
        close(own);
}

static void isolate(const struct order *order) {
    if (!order->has_mounts)
        return;
    must(!unshare(CLONE_NEWNS | (order->ipc ? CLONE_NEWIPC : 0)), "walls", "unshare");
    put("none", "/", NULL, MS_SLAVE | MS_REC, NULL);
    arrange(order);
    if (order->pid_namespace)
        put("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
}

static void set_limits(const struct order *order) {
    for (size_t index = 0; index < order->limit_count; index++) {
        struct rlimit now;
        rlim_t value = order->limits[index].value;
        must(!getrlimit((__rlimit_resource_t)order->limits[index].kind, &now), "start", "getrlimit");
        if (now.rlim_max != RLIM_INFINITY && value > now.rlim_max)
            value = now.rlim_max;
        now.rlim_cur = now.rlim_max = value;
        must(!setrlimit((__rlimit_resource_t)order->limits[index].kind, &now), "start", "setrlimit");
    }
    if (order->nice) {
        errno = 0;
        must(nice(order->nice) != -1 || !errno, "start", "nice");
    }
}

/* All capabilities but these go out of what this process can ever get by starting a program. Nothing happens in a
 * process without rights, which gets none anyhow (PR_SET_NO_NEW_PRIVS). It ends at the first number that the kernel does
 * not know. */
static void bound_capabilities(uint64_t kept) {
    for (int number = 0; number < 64; number++)
        if (!(kept >> number & 1) && prctl(PR_CAPBSET_DROP, number, 0, 0, 0))
            return;
}

static void keep_capabilities(uint64_t kept) {
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct now[2];
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
    must(!syscall(SYS_capget, &header, now), "account", "capget");
    for (int word = 0; word < 2; word++) {
        now[word].effective &= (uint32_t)(kept >> (32 * word));
        now[word].permitted &= (uint32_t)(kept >> (32 * word));
        now[word].inheritable = 0;
    }
    must(!syscall(SYS_capset, &header, now), "account", "capset");
}

/* Of the kernel's landlock.h, which is not everywhere. */
#define READ (1ull << 0 | 1ull << 2 | 1ull << 3)                  /* EXECUTE, READ_FILE, READ_DIR */
#define ALL (READ | 1ull << 1 | 0x1ffull << 4 | 1ull << 13 | 1ull << 14) /* WRITE_FILE, REMOVE, MAKE, REFER, TRUNCATE */
#define OF_FILES (1ull << 0 | 1ull << 1 | 1ull << 2 | 1ull << 14)
#define SCOPE_ABSTRACT_SOCKETS 1ull
#define SCOPE_SIGNALS 2ull
#define LANDLOCK_SIGNALS 6

static void confine(const struct order *order) {
    /* Does nothing where Landlock can not keep signals in: who needs it there asks before. */
    if (!order->has_landlock || syscall(CALL_LANDLOCK_CREATE, NULL, 0, 1) < LANDLOCK_SIGNALS)
        return;
    uint64_t attributes[3] = {order->all_files ? 0 : ALL, 0,
                              order->all_files ? SCOPE_SIGNALS : SCOPE_SIGNALS | SCOPE_ABSTRACT_SOCKETS};
    int ruleset = (int)syscall(CALL_LANDLOCK_CREATE, attributes, sizeof attributes, 0);
    must(ruleset >= 0, "account", "landlock_create_ruleset");
    for (size_t index = 0; index < order->grant_count; index++) {
        struct {
            uint64_t rights;
            int32_t where;
        } __attribute__((packed)) rule;
        struct stat found;
        int where = open(order->grants[index].path, O_PATH | O_CLOEXEC); /* a link is followed */
        if (where < 0)
            continue; /* gone meanwhile: there is nothing to grant */
        rule.rights = order->grants[index].write ? ALL : READ;
        rule.where = where;
        must(!fstat(where, &found), "account", order->grants[index].path);
        if (!S_ISDIR(found.st_mode))
            rule.rights &= OF_FILES;
        must(!syscall(CALL_LANDLOCK_ADD, ruleset, 1, &rule, 0), "account", "landlock_add_rule");
        close(where);
    }
    if (geteuid())
        must(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "account", "prctl");
    must(!syscall(CALL_LANDLOCK_RESTRICT, ruleset, 0), "account", "landlock_restrict_self");
    close(ruleset);
}

static void take_account(const struct order *order) {
    if (order->has_capabilities)
        bound_capabilities(order->capabilities);
    confine(order);
    if (order->has_account) {
        /* The calls themselves: libc's are for processes with threads. */
        must(!syscall(SYS_setgroups, order->group_count, order->groups), "account", "setgroups");
        must(!syscall(SYS_setresgid, order->gid, order->gid, order->gid), "account", "setresgid");
        must(!syscall(SYS_setresuid, order->uid, order->uid, order->uid), "account", "setresuid");
    }
    if (order->has_capabilities)
        keep_capabilities(order->capabilities);
}

/* Files are opened as the job's account, which is all that keeps a job from writing to others' files by naming them. */
static void open_streams(const struct order *order) {
    static const char *const names[] = {"stdin", "stdout", "stderr"};
    for (int index = 0; index < 3; index++) {
        const char *path = *order->streams[index] ? order->streams[index] : "/dev/null";
        if (index == 2 && !strcmp(path, order->streams[1])) {
            must(dup2(1, 2) >= 0, names[index], path);
            continue;
        }
        int how = index ? O_WRONLY | O_CREAT | (order->append[index] ? O_APPEND : O_TRUNC) : O_RDONLY;
        /* A pipe without anybody at its other end must not keep us waiting: one to write to is refused (ENXIO), one to
         * read from is the job's to wait for. */
        int file = open(path, how | O_NONBLOCK | O_CLOEXEC, 0666);
        must(file >= 0, names[index], path);
        int flags = fcntl(file, F_GETFL);
        must(flags >= 0 && !fcntl(file, F_SETFL, flags & ~O_NONBLOCK), names[index], path);
        if (file == index)
            must(!fcntl(file, F_SETFD, 0), names[index], path);
        else {
            must(dup2(file, index) >= 0, names[index], path);
            close(file);
        }
    }
}

/* The server's filters, by what they leave open (`filter_of`), as instructions for the kernel. */
static struct sock_filter *filters[4];
static unsigned short filter_lengths[4];
static bool filters_known[4];

/* The last thing of all: what has been done until here may need what is given up. */
static void filter_calls(const struct order *order) {
    if (order->no_new_privileges)
        must(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "walls", "prctl");
    if (order->filter < 0)
        return;
    if (!filters_known[order->filter])
        give_up("walls", EINVAL, "the spawner was given no filter of system calls");
    if (!filter_lengths[order->filter])
        return; /* there is none for this kind of machine */
    struct sock_fprog program = {filter_lengths[order->filter], filters[order->filter]};
    must(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "walls", "prctl");
    must(!prctl(PR_SET_SECCOMP, 2, &program, 0, 0), "walls", "prctl(PR_SET_SECCOMP)");
}

/* parent: the process without which it must not live; 0: PID 1 of its namespace is. */
static void become_job(const struct order *order, pid_t parent) __attribute__((noreturn));

static void become_job(const struct order *order, pid_t parent) {
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL); /* all are handled as a login shell would find them: `main` */
    setsid();
    write_file("/proc/self", "oom_score_adj", OOM_SCORE); /* a machine that forbids it decides by itself */
    if (!order->pid_namespace)
        isolate(order);
    if (order->has_cores && sched_setaffinity(0, sizeof order->cores, (const cpu_set_t *)order->cores)) {
        int number = errno;
        give_up("cores", number, "cores %.80s: %s", order->cores_text, strerror(number));
    }
    set_limits(order);
    take_account(order);
    /* After the account: a change of the user takes this away. */
    must(!prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0), "start", "prctl");
    if (parent && getppid() != parent)
        _exit(127); /* it died before the line above took effect */
    must(!chdir(order->cwd), "cwd", order->cwd);
    umask(order->umask);
    open_streams(order);
    filter_calls(order);
    execve(order->executable, order->argv, order->env);
    must(false, "exec", order->executable);
    _exit(127);
}

static void close_from(int first) {
    if (!syscall(CALL_CLOSE_RANGE, first, ~0u, 0))
        return;
    struct rlimit limit;
    int most = getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur > 1 << 20 ? 1 << 20 : (int)limit.rlim_cur;
    for (int number = first; number < most; number++)
        close(number);
}

/* PID 1 of the job's namespace: isolates it, starts the job, collects what ends, and ends with the job. */
static void be_init(const struct order *order) __attribute__((noreturn));

static void be_init(const struct order *order) {
    sigset_t none;
    struct pollfd nanny = {above, POLLIN, 0};
    must(!prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0), "start", "prctl");
    if (poll(&nanny, 1, 0))
        _exit(127); /* the nanny died before the line above took effect */
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL); /* PID 1 gets no signal from its children that it does not handle */
    setsid();
    isolate(order);
    int begun[2];
    must(!pipe2(begun, O_CLOEXEC), "start", "pipe");
    pid_t job = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    must(job >= 0, "start", "fork");
    struct note note;
    memset(&note, 0, sizeof note);
    if (job == 0) {
        close(begun[0]);
        note.kind = PID;
        send_note(&note);
        become_job(order, 0);
    }
    close(begun[1]);
    char nothing;
    while (read(begun[0], &nothing, 1) < 0 && errno == EINTR)
        continue;
    close(begun[0]);
    note.kind = BEGUN;
    send_note(&note);
    while (true) {
        int status;
        pid_t pid = waitpid(-1, &status, 0);
        if (pid == job) {
            note.kind = ENDED;
            note.number = status;
            send_note(&note);
            _exit(0);
        }
        if (pid < 0 && errno != EINTR)
            _exit(127); /* can not be: the job is our child */
    }
}

/* ---------------------------------------------------------------- the nanny */

static pid_t job_main;   /* the job's main process, by our numbers */
static pid_t child;      /* our own: the same, or the init */
static int below = -1;   /* what the child says; -1: it says nothing more */
static int children = -1; /* signalfd of SIGCHLD */
static bool ended, told; /* the job, and by its init */
static int status, told_status;

/* Waits for a child's end, and so long at most. */
static void wait_for_child(int ms) {
    struct pollfd child_ended = {children, POLLIN, 0};
    struct signalfd_siginfo about;
    poll(&child_ended, 1, ms);
    while (read(children, &about, sizeof about) > 0)
        continue;
}

/* Kill everything below until nothing is left. Ends at once when nothing is. */
static void finish(void) {
    bool first = true;
    while (true) {
        pid_t pid = waitpid(-1, NULL, WNOHANG);
        if (pid < 0 && errno != EINTR)
            return;
        if (pid == 0) {
            if (!(first && cgroup_kill()))
                kill_descendants(getpid());
            first = false;
            /* A child's end wakes it early; else another round is due for what was forked meanwhile. */
            wait_for_child(KILL_ROUND_MS);
        }
    }
}

static void end_with_job(void) __attribute__((noreturn));

static void end_with_job(void) {
    finish();
    _exit(0);
}

/* One note from below, and from whom; false: there is none any more, or none yet. */
static bool hear(struct note *note, pid_t *from, int flags) {
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(struct ucred))];
    } credentials;
    struct iovec part = {note, sizeof *note};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &credentials,
                             .msg_controllen = sizeof credentials};
    memset(note, 0, sizeof *note);
    memset(&credentials, 0, sizeof credentials);
    ssize_t length;
    while ((length = recvmsg(below, &message, flags)) < 0 && errno == EINTR)
        continue;
    if (length < (ssize_t)offsetof(struct note, what))
        return false;
    note->what[sizeof note->what - 1] = note->message[sizeof note->message - 1] = 0;
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    *from = 0;
    if (head && head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_CREDENTIALS) {
        struct ucred sender;
        memcpy(&sender, CMSG_DATA(head), sizeof sender);
        *from = sender.pid;
    }
    return true;
}

/* Start the job; false: it was said why that could not be. */
static bool start(const struct order *order) {
    int pair[2], yes = 1;
    pid_t nanny = getpid();
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair)) {
        say_failed("start", errno, strerror(errno));
        return false;
    }
    below = pair[0];
    above = pair[1];
    setsockopt(below, SOL_SOCKET, SO_PASSCRED, &yes, sizeof yes);
    child = cgroup_fork(order->pid_namespace);
    if (child < 0) {
        say_failed("start", errno, strerror(errno));
        return false;
    }
    if (child == 0) {
        /* Nothing of the nanny's stays open in what does not become another program. */
        above = dup3(above, CHANNEL, O_CLOEXEC);
        close_from(CHANNEL + 1);
        for (size_t index = 0; index < cgroup.join_count; index++)
            must(write_file(cgroup.join[index], "cgroup.procs", "0"), "cgroup", "the job's cgroup");
        if (*cgroup.unified && !cgroup.born)
            must(write_file(cgroup.unified, "cgroup.procs", "0"), "cgroup", "the job's cgroup");
        if (order->pid_namespace)
            be_init(order);
        become_job(order, nanny);
    }
    close(above);
    job_main = order->pid_namespace ? 0 : child;
    while (true) {
        struct note note;
        pid_t from;
        if (!hear(&note, &from, 0)) {
            if (!order->pid_namespace)
                return true; /* it has begun (or was killed before) */
            note.kind = FAILED;
            snprintf(note.what, sizeof note.what, "start");
            snprintf(note.message, sizeof note.message, "its first process was killed before it could start the job");
        }
        if (note.kind == PID)
            job_main = from;
        else if (note.kind == BEGUN)
            return true;
        else {
            /* Not before all of it is gone, and the cgroup is free. */
            while (waitpid(child, NULL, 0) < 0 && errno == EINTR)
                continue;
            finish();
            say_failed(note.what, note.number, note.message);
            return false;
        }
    }
}

/* What the init says: how the job ended. It ends itself then, and takes the others with it. */
static void hear_init(int flags) {
    struct note note;
    pid_t from;
    if (below < 0)
        return;
    if (hear(&note, &from, flags)) {
        if (note.kind == ENDED) {
            told = true;
            told_status = note.number;
        }
    } else if (!(flags & MSG_DONTWAIT)) {
        close(below);
        below = -1;
    }
}

/* Collect what ended; remember the status of the job's main process (or of the init, if that was killed). */
static void reap(bool inside) {
    pid_t pid;
    int found;
    while ((pid = waitpid(-1, &found, WNOHANG)) > 0)
        if (pid == child && !ended) {
            if (inside && !told)
                hear_init(MSG_DONTWAIT);
            ended = true;
            status = told ? told_status : found;
        }
}

/* A job that has lost one of its processes for lack of memory is over, whatever the others do. */
static void look_at_memory(void) {
    if (cgroup_out_of_memory() && !ended) {
        cgroup_kill();
        kill_descendants(getpid());
    }
}

/* False: this is no order. */
static bool obey(const struct value *order) {
    static const char *const names[] = {"signal", "tree", NULL};
    struct value *found[2];
    struct refusal refusal;
    int64_t number = 0;
    bool tree;
    if (!spread(order, names, found, "order", &refusal) || !found[0] ||
        !whole_of(found[0], 1, 64, &number, "signal", &refusal) || !flag_of(found[1], &tree, "tree", &refusal))
        return false;
    if (!tree) {
        if (job_main > 0)
            kill(job_main, (int)number);
    } else if (number == SIGKILL) {
        cgroup_kill();
        kill_descendants(getpid());
    } else if ((number != SIGSTOP && number != SIGCONT) || !cgroup_freeze(number == SIGSTOP))
        signal_descendants(getpid(), (int)number);
    return true;
}

static void obey_all(struct frames *frames) {
    int there;
    while ((there = has_frame(frames)) > 0) {
        struct arena arena = {NULL};
        struct value *order = read_json(frames->data + 4, frame_length(frames), &arena);
        if (!order || !obey(order))
            there = -1;
        give_back(&arena);
        if (there < 0)
            break;
        drop_frame(frames);
    }
    if (there < 0) { /* whoever says that is not our server */
        complain("roost-spawner: a nanny was sent what is no order; its job is ended");
        end_with_job();
    }
}

/* More of what the server says; false: it is gone. */
static bool listen_to_server(struct frames *frames) {
    static unsigned char data[1 << 16];
    ssize_t count;
    while ((count = read(CHANNEL, data, sizeof data)) < 0 && errno == EINTR)
        continue;
    if (count <= 0)
        return false;
    add_to(frames, data, (size_t)count);
    return true;
}

static struct {
    bool wanted;
    int64_t peak_kib;
    double wait, next;
} looks;

static void look_at_processes(void) {
    double now = clock_s(CLOCK_MONOTONIC);
    if (!looks.wanted || now < looks.next)
        return;
    double began = clock_s(CLOCK_THREAD_CPUTIME_ID);
    int64_t held = 0;
    struct pids pids = descendants_of(getpid());
    for (size_t index = 0; index < pids.count; index++)
        held += memory_of(pids.at[index]);
    free(pids.at);
    if (held > looks.peak_kib)
        looks.peak_kib = held;
    double took = (clock_s(CLOCK_THREAD_CPUTIME_ID) - began) * LOOK_SHARE;
    looks.wait = looks.wait * LOOK_GROWTH < MOST_LOOK_S ? looks.wait * LOOK_GROWTH : MOST_LOOK_S;
    looks.next = now + (looks.wait > took ? looks.wait : took);
}

static void watch(struct frames *frames, bool inside) {
    while (!ended) {
        int patience = -1;
        bool uneasy = cgroup.uneasy > 0;
        if (uneasy)
            patience = UNEASY_MS;
        else if (looks.wanted) {
            double left = (looks.next - clock_s(CLOCK_MONOTONIC)) * 1000;
            patience = left > 0 ? (int)left + 1 : 1;
        }
        struct pollfd ready[4] = {{CHANNEL, POLLIN, 0}, {children, POLLIN, 0}, {below, POLLIN, 0},
                                  {cgroup.counter >= 0 ? cgroup.counter : cgroup.events,
                                   cgroup.counter >= 0 ? POLLIN : POLLPRI, 0}};
        if (poll(ready, 4, patience) < 0 && errno != EINTR)
            end_with_job();
        if (ready[0].revents) {
            if (!listen_to_server(frames))
                end_with_job(); /* the server is gone: so is the job */
            obey_all(frames);
        }
        if (ready[2].revents)
            hear_init(0);
        if (ready[3].revents || uneasy)
            look_at_memory();
        look_at_processes();
        if (ready[1].revents)
            wait_for_child(0);
        reap(inside);
    }
}

static void be_nanny(void) __attribute__((noreturn));

static void be_nanny(void) {
    struct frames frames = {NULL, 0, 0};
    struct arena arena = {NULL};
    struct order order;
    struct refusal refusal = {"start", "the spawner was sent what is no order"};
    sigset_t child_ended;
    char text[1024];
    sigemptyset(&child_ended);
    sigaddset(&child_ended, SIGCHLD);
    children = signalfd(-1, &child_ended, SFD_NONBLOCK | SFD_CLOEXEC);
    if (children < 0 || prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
        _exit(71);
    int there;
    while (!(there = has_frame(&frames)))
        if (!listen_to_server(&frames))
            _exit(0); /* never needed */
    struct value *asked = there > 0 ? read_json(frames.data + 4, frame_length(&frames), &arena) : NULL;
    if (!asked || !read_order(asked, &order, &arena, &refusal)) {
        say_failed(refusal.what, EINVAL, refusal.message);
        _exit(0);
    }
    drop_frame(&frames);
    cgroup_watch(&order);
    if (!start(&order))
        _exit(0);
    int length = snprintf(text, sizeof text, "{\"op\":\"spawned\",\"pid\":%d,\"at\":%.6f}", job_main,
                          clock_s(CLOCK_REALTIME));
    send_frame(text, (size_t)length);
    looks.wanted = !cgroup_tells_peak();
    looks.wait = FIRST_LOOK_S;
    looks.next = clock_s(CLOCK_MONOTONIC) + FIRST_LOOK_S;
    obey_all(&frames);
    reap(order.pid_namespace);
    watch(&frames, order.pid_namespace);
    double ended_at = clock_s(CLOCK_REALTIME);
    look_at_memory();
    int64_t peak_kib = cgroup_resident_peak();
    if (looks.peak_kib > peak_kib)
        peak_kib = looks.peak_kib;
    finish();
    struct rusage used;
    getrusage(RUSAGE_CHILDREN, &used);
    if (used.ru_maxrss > peak_kib) /* of the largest process alone */
        peak_kib = used.ru_maxrss;
    length = snprintf(text, sizeof text,
                      "{\"op\":\"ended\",\"status\":%d,\"at\":%.6f,\"user_cpu_s\":%.6f,\"sys_cpu_s\":%.6f,"
                      "\"max_rss_kib\":%lld%s",
                      status, ended_at, (double)used.ru_utime.tv_sec + (double)used.ru_utime.tv_usec / 1e6,
                      (double)used.ru_stime.tv_sec + (double)used.ru_stime.tv_usec / 1e6, (long long)peak_kib,
                      cgroup.used_up ? ",\"cgroup_used_up\":true" : "");
    if (out_of_memory.happened)
        length += snprintf(text + length, sizeof text - (size_t)length,
                           ",\"out_of_memory\":{\"killed\":%lld,\"own\":%s,\"peak_bytes\":%lld}",
                           (long long)out_of_memory.killed, out_of_memory.own ? "true" : "false",
                           (long long)out_of_memory.peak);
    length += snprintf(text + length, sizeof text - (size_t)length, "}");
    send_frame(text, (size_t)length);
    _exit(0);
}

/* ---------------------------------------------------------------- the spawner itself */

/* A nanny for this channel, as a child of the server: its number, or -errno. */
static pid_t make_nanny(int channel) {
    pid_t pid = (pid_t)syscall(SYS_clone, CLONE_PARENT, 0, 0, 0, 0);
    if (pid < 0)
        return -errno;
    if (pid == 0) {
        /* Copies of other channels would keep their nannies from seeing the server's end. */
        if (dup3(channel, CHANNEL, O_CLOEXEC) < 0)
            _exit(71);
        close_from(CHANNEL + 1);
        be_nanny();
    }
    return pid;
}

static bool keep_filter(const unsigned char *data, size_t length) {
    size_t size = length - 2;
    if (length < 2 || data[1] > 3 || size % sizeof(struct sock_filter) || size / sizeof(struct sock_filter) > BPF_MAXINSNS)
        return false;
    struct sock_filter *filter = memory(size);
    memcpy(filter, data + 2, size);
    free(filters[data[1]]);
    filters[data[1]] = filter;
    filter_lengths[data[1]] = (unsigned short)(size / sizeof(struct sock_filter));
    filters_known[data[1]] = true;
    return true;
}

/* What the server says, a packet each: F, a number and a filter; N with a descriptor, answered with four bytes. It ends
 * with the server, and when it hears something else. */
static int serve(void) {
    static unsigned char data[1 << 17];
    char greeting[128];
    int length = snprintf(greeting, sizeof greeting, "%d %s", WALLS, SOURCE);
    if (send(CHANNEL, greeting, (size_t)length, MSG_NOSIGNAL) != length)
        return 1;
    while (true) {
        union {
            struct cmsghdr align;
            char bytes[CMSG_SPACE(sizeof(int))];
        } rights;
        struct iovec part = {data, sizeof data};
        struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &rights,
                                 .msg_controllen = sizeof rights};
        ssize_t count = recvmsg(CHANNEL, &message, MSG_CMSG_CLOEXEC);
        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0)
            return count < 0;
        struct cmsghdr *head = CMSG_FIRSTHDR(&message);
        int channel = -1;
        if (head && head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_RIGHTS &&
            head->cmsg_len == CMSG_LEN(sizeof channel))
            memcpy(&channel, CMSG_DATA(head), sizeof channel);
        if (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC))
            return 2;
        if (data[0] == 'N' && count == 1 && channel >= 0) {
            int32_t answer = make_nanny(channel);
            close(channel);
            if (send(CHANNEL, &answer, sizeof answer, MSG_NOSIGNAL) != sizeof answer)
                return 1;
        } else if (data[0] != 'F' || channel >= 0 || !keep_filter(data, (size_t)count))
            return 2;
    }
}

/* Reads orders from standard input, and says of each whether it would be obeyed. */
static int check(void) {
    struct frames frames = {NULL, 0, 0};
    unsigned char data[1 << 16];
    ssize_t count;
    while ((count = read(0, data, sizeof data)) > 0) {
        int there;
        add_to(&frames, data, (size_t)count);
        while ((there = has_frame(&frames)) > 0) {
            struct arena arena = {NULL};
            struct order order;
            struct refusal refusal = {"start", "it is malformed"};
            struct value *asked = read_json(frames.data + 4, frame_length(&frames), &arena);
            if (asked && read_order(asked, &order, &arena, &refusal)) {
                char **word = order.argv;
                while (*word)
                    word++;
                printf("good %zd ", word - order.argv);
                for (const char *at = order.argv[0]; *at; at++)
                    printf("%02x", (unsigned char)*at);
                printf("\n");
            } else {
                for (char *at = refusal.message; *at; at++)
                    if (*at < 0x20 || *at > 0x7e)
                        *at = '?'; /* a line each */
                printf("refused %s %s\n", refusal.what, refusal.message);
            }
            give_back(&arena);
            drop_frame(&frames);
        }
        if (there < 0) {
            printf("refused start these are no frames\n");
            break;
        }
    }
    free(frames.data);
    return fflush(stdout) ? 1 : 0;
}

/* Run as a job: whether the walls stand around it. kept: its capabilities, as bits. filtered: 0 or 1. */
static int probe(const char *kept, const char *filtered) {
    uint64_t bits = strtoull(kept, NULL, 10);
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct now[2];
    struct rlimit limit;
    if (prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1)
        return 1;
    if (prctl(PR_GET_SECCOMP, 0, 0, 0, 0) != (*filtered == '1' ? 2 : 0))
        return 2;
    if (syscall(SYS_capget, &header, now))
        return 3;
    uint64_t has = (uint64_t)now[1].permitted << 32 | now[0].permitted;
    if (has & ~bits || now[0].inheritable || now[1].inheritable)
        return 4;
    for (int number = 0; number < 64; number++)
        if (!geteuid() && !(bits >> number & 1) && prctl(PR_CAPBSET_READ, number, 0, 0, 0) == 1)
            return 5;
    if (getrlimit(RLIMIT_CORE, &limit) || limit.rlim_cur || limit.rlim_max)
        return 6;
    if (getsid(0) != getpid())
        return 7;
    if (fcntl(3, F_GETFD) >= 0 || fcntl(0, F_GETFD) < 0 || fcntl(1, F_GETFD) < 0 || fcntl(2, F_GETFD) < 0)
        return 8;
    return PROBED;
}

int main(int count, char **words) {
    if (count == 2 && !strcmp(words[1], "serve")) {
        /* Jobs of a startd that is not root have our account: they must not read here what other jobs were given. */
        if (geteuid())
            prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
        sigset_t child_ended;
        /* Also those that libc keeps for itself and lets nobody set, but leaves ignored after posix_spawn. */
        const unsigned long handled_by_default[8] = {0};
        for (int number = 1; number <= 64; number++)
            syscall(SYS_rt_sigaction, number, handled_by_default, NULL, 8);
        sigemptyset(&child_ended);
        sigaddset(&child_ended, SIGCHLD);
        sigprocmask(SIG_SETMASK, &child_ended, NULL);
        close_from(CHANNEL + 1);
        return serve();
    }
    if (count == 2 && !strcmp(words[1], "check"))
        return check();
    if (count == 4 && !strcmp(words[1], "probe"))
        return probe(words[2], words[3]);
    complain("Usage: roost-spawner serve | check | probe KEPT FILTERED");
    return 64;
}
