// Numbers and times as people read them.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const some = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const more = new Intl.NumberFormat("en", { maximumFractionDigits: 2 });

/** @param {unknown} value @returns {value is number} */
export const isNumber = (value) => typeof value === "number" && Number.isFinite(value);

/** 1234567 -> "1,234,567". @param {unknown} value */
export const count = (value) => (isNumber(value) ? whole.format(value) : "–");

/** At most two decimals, fewer for large numbers. @param {unknown} value */
export function number(value) {
  if (!isNumber(value)) return "–";
  const size = Math.abs(value);
  if (size >= 1e12) return value.toExponential(2);
  return (size >= 1000 ? whole : size >= 10 ? some : more).format(value);
}

/** 0.123 -> "12.3 %". @param {unknown} value */
export const percent = (value) => (isNumber(value) ? `${some.format(value * 100)} %` : "–");

/** Seconds as "3 h 12 min". @param {unknown} seconds */
export function duration(seconds) {
  if (!isNumber(seconds)) return "–";
  const s = Math.max(0, seconds);
  if (s < 0.001) return "0 s";
  if (s < 1) return `${Math.max(1, Math.round(s * 1000))} ms`;
  if (s < 60) return `${s < 10 ? more.format(s) : whole.format(s)} s`;
  if (s < 3600) return two(s, 60, "min", 1, "s");
  if (s < 86400) return two(s, 3600, "h", 60, "min");
  if (s < 86400 * 365) return two(s, 86400, "d", 3600, "h");
  return two(s, 86400 * 365, "y", 86400, "d");
}

function two(seconds, large, largeName, small, smallName) {
  const first = Math.floor(seconds / large);
  const second = Math.floor((seconds - first * large) / small);
  return second ? `${first} ${largeName} ${second} ${smallName}` : `${first} ${largeName}`;
}

/** MiB as "16 GiB". @param {unknown} mib */
export function memory(mib) {
  if (!isNumber(mib)) return "–";
  if (mib >= 1024 * 1024) return `${some.format(mib / 1024 / 1024)} TiB`;
  return mib >= 1024 ? `${some.format(mib / 1024)} GiB` : `${whole.format(mib)} MiB`;
}

/** Bytes as "1.2 GB". @param {unknown} value */
export function bytes(value) {
  if (!isNumber(value)) return "–";
  const place = Math.min(4, Math.max(0, Math.floor(Math.log10(Math.max(1, value)) / 3)));
  return `${some.format(value / 1000 ** place)} ${["B", "kB", "MB", "GB", "TB"][place]}`;
}

/** How far files are: "1.2 GB of 5 GB, 80 MB/s, 48 s left". @param {unknown} done @param {unknown} total @param {unknown} rate */
export function progress(done, total, rate) {
  const known = isNumber(total) && total > 0;
  const parts = [`${bytes(done)}${known ? ` of ${bytes(total)}` : ""}`];
  if (isNumber(rate) && rate > 0) {
    parts.push(`${bytes(rate)}/s`);
    if (known && isNumber(done) && done < total) parts.push(`${duration(Math.round((total - done) / rate))} left`);
  }
  return parts.join(", ");
}

const day = new Intl.DateTimeFormat("en-GB", { day: "2-digit", month: "short" });
const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const whole_date = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "medium" });

/** Seconds since 1970: the time of today, with the day otherwise. @param {unknown} at */
export function moment(at) {
  if (!isNumber(at) || at <= 0) return "–";
  const date = new Date(at * 1000);
  const today = new Date();
  return date.toDateString() === today.toDateString() ? clock.format(date) : `${day.format(date)}, ${clock.format(date)}`;
}

/** The whole date. @param {unknown} at */
export const date = (at) => (isNumber(at) && at > 0 && at < 8e12 ? whole_date.format(new Date(at * 1000)) : "–");

/** The largest unit only. */
function coarse(seconds) {
  for (const [size, name] of [[86400 * 365, "y"], [86400, "d"], [3600, "h"], [60, "min"]]) {
    if (seconds >= size) return `${Math.floor(seconds / size)} ${name}`;
  }
  return `${Math.floor(seconds)} s`;
}

/** "3 min ago". @param {unknown} at @param {number} now */
export const ago = (at, now = Date.now() / 1000) =>
  isNumber(at) && at > 0 ? (now - at < 1.5 ? "now" : `${coarse(now - at)} ago`) : "–";
