// Durations and shares written as the report writes them (xlaprof/text/quantities.py; a test holds both together).
function fixed(value, digits) {
  const step = 1 / (1 << digits), text = value.toFixed(digits);
  if (value % step !== step / 2) return text;
  // exactly between two numbers: the even one, as Python rounds
  const low = Math.floor(value * 10 ** digits);
  return ((low % 2 ? low + 1 : low) / 10 ** digits).toFixed(digits);
}
function pad(number) { return String(number).padStart(2, '0'); }
function duration(seconds) {
  if (!(seconds > 0)) return '0 s';
  if (seconds >= 100 * 3600) {
    const hours = Number(fixed(seconds / 3600, 0));
    return `${Math.floor(hours / 24)}d ${pad(hours % 24)}h`;
  }
  if (seconds >= 3599.5) {
    const minutes = Number(fixed(seconds / 60, 0));
    return `${Math.floor(minutes / 60)}h ${pad(minutes % 60)}m`;
  }
  if (seconds >= 99.95) {
    const whole = Number(fixed(seconds, 0));
    return `${Math.floor(whole / 60)}m ${pad(whole % 60)}s`;
  }
  if (seconds >= 0.9995) return seconds < 9.995 ? `${fixed(seconds, 2)} s` : `${fixed(seconds, 1)} s`;
  if (seconds >= 999.5e-6) return seconds < 9.95e-3 ? `${fixed(seconds * 1e3, 1)} ms` : `${fixed(seconds * 1e3, 0)} ms`;
  return seconds >= 999.5e-9 ? `${fixed(seconds * 1e6, 0)} us` : `${fixed(seconds * 1e9, 0)} ns`;
}
function percent(share) { return share > 0 && share < 0.005 ? '<1%' : `${fixed(share * 100, 0)}%`; }
function count(number) { return number.toLocaleString('en-US'); }
function plural(number, noun) { return `${count(number)} ${noun}${number === 1 ? '' : 's'}`; }
// A moment on an axis whose marks are so many seconds apart.
function moment(seconds, apart) {
  const digits = Math.max(0, Math.min(9, Math.ceil(-Math.log10(apart) - 1e-9)));
  if (digits > 3) return `${(seconds * 1e3).toFixed(Math.max(0, digits - 3))} ms`;
  if (seconds >= 100 && digits === 0) return duration(seconds);
  return `${seconds.toFixed(digits)} s`;
}
