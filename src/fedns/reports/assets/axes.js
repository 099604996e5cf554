// Numbers as people read them, and the axes of a figure.

const INSET = 7; // pixels between the frame and the outermost points

function bytesText(value) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let step = 0;
  for (; Math.abs(value) >= 999.5 && step < units.length - 1; step++) value /= 1000;
  return `${+value.toPrecision(3)} ${units[step]}`;
}

function numberText(value) {
  const size = Math.abs(value);
  if (value === 0 || (size >= 1e-3 && size < 1e6)) return String(+value.toPrecision(4));
  return value.toExponential(2);
}

function valueText(scale, value) {
  return scale.unit === "bytes" ? bytesText(value) : numberText(value);
}

function tickText(scale, value) {
  if (scale.unit === "bytes") return bytesText(value);
  const power = Math.floor(Math.log10(value) + 1e-9);
  if (!scale.logarithmic || (power > -2 && power < 5)) return numberText(value);
  const digit = Math.round(value / 10 ** power);
  const raised = String(power).replace(/./g, (c) => "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"["-0123456789".indexOf(c)]);
  return `${digit === 1 ? "" : `${digit}·`}10${raised}`;
}

function linearTicks(low, high, most, whole) {
  const raw = (high - low) / most;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = Math.max([1, 2, 5, 10].find((n) => n * power >= raw) * power, whole ? 1 : 0);
  const ticks = [];
  for (let n = Math.ceil(low / step - 1e-9); n * step <= high + 1e-9 * step; n++) ticks.push(+(n * step).toPrecision(12));
  return ticks.length > 1 || whole || most > 8 ? ticks : linearTicks(low, high, most + 1, whole); // one number is no scale
}

function logarithmicTicks(low, high, most) {
  const [first, last] = [Math.floor(Math.log10(low)), Math.ceil(Math.log10(high))];
  const every = Math.ceil((last - first) / most);
  const digits = last - first <= 2 ? [1, 2, 5] : [1];
  const ticks = [];
  for (let power = Math.ceil(first / every) * every; power <= last; power += every)
    for (const digit of digits) ticks.push(+`${digit}e${power}`);
  const inside = ticks.filter((tick) => tick >= low * 0.999 && tick <= high * 1.001);
  return inside.length > 1 ? inside : linearTicks(low, high, most, false);
}

// An axis over the values: where a value lies among so many pixels, and which are written beside it.
function makeAxis(scale, values, pixels, most) {
  const has = (value) => value !== null && (!scale.logarithmic || value > 0);
  const usable = values.filter(has);
  let low = usable.reduce((a, b) => Math.min(a, b), Infinity);
  let high = usable.reduce((a, b) => Math.max(a, b), -Infinity);
  if (!usable.length) [low, high] = scale.logarithmic ? [0.1, 1] : [0, 1];
  const half = (Math.abs(low) || 1) / 2;
  if (low === high) [low, high] = scale.logarithmic ? [low / 3, high * 3] : [low - half, high + half];
  const bend = scale.logarithmic ? Math.log10 : (value) => value;
  const whole = usable.every(Number.isInteger);
  return {
    scale,
    has,
    low,
    at: (value) => INSET + ((bend(value) - bend(low)) / (bend(high) - bend(low))) * (pixels - 2 * INSET),
    ticks: scale.logarithmic ? logarithmicTicks(low, high, most) : linearTicks(low, high, most, whole),
  };
}
