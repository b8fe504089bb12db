// Rows of the timeline: numbers unpacked into arrays, found by time, drawn with one rectangle to a dot at most.
// Parts by number: what is drawn in one colour.
const PART_NAMES = [...new Set(DATA.labels.map((label) => label[1]))];
const PART_OF = Uint8Array.from(DATA.labels, (label) => PART_NAMES.indexOf(label[1]));
const SUMS = new Float64Array(PART_NAMES.length);
class Row {
  constructor(told) {
    this.title = told.title;
    this.of = told.of;
    this.depth = told.depth;
    const many = told.spans.length / 4;
    this.start = new Float64Array(many);
    this.length = new Float64Array(many);
    this.label = new Uint32Array(many);
    this.place = new Uint32Array(many);
    this.until = new Float64Array(many); // the latest end so far
    let at = 0, latest = 0;
    for (let n = 0; n < many; n++) {
      at += told.spans[4 * n];
      this.start[n] = at;
      this.length[n] = told.spans[4 * n + 1];
      this.label[n] = told.spans[4 * n + 2];
      this.place[n] = told.spans[4 * n + 3];
      latest = Math.max(latest, at + this.length[n]);
      this.until[n] = latest;
    }
    this.blame = told.blame || null;
    if (this.blame) {
      this.blameAt = new Uint32Array(many);
      for (let n = 0, from = 0; n < many; n++) {
        this.blameAt[n] = from;
        from += 2 + 2 * this.blame[from + 1];
      }
    }
    this.unpackCells(told.cells, told.cell);
  }
  unpackCells(cells, cell) {
    this.cell = cell;
    this.cells = cells;
    const starts = [], where = [];
    for (let from = 0, at = 0; from < cells.length; from += 2 + 3 * cells[from + 1]) {
      at += cells[from];
      starts.push(at);
      where.push(from);
    }
    this.cellStart = Float64Array.from(starts);
    this.cellAt = Uint32Array.from(where);
    const kinds = (cells.length - 2 * where.length) / 3;
    this.kindFrom = new Uint32Array(where.length + 1); // of each cell: its first kind
    this.kindPart = new Uint8Array(kinds);
    this.kindLength = new Float64Array(kinds);
    for (let n = 0, kind = 0; n < where.length; n++) {
      this.kindFrom[n] = kind;
      for (let k = 0; k < cells[where[n] + 1]; k++, kind++) {
        this.kindPart[kind] = PART_OF[cells[where[n] + 2 + 3 * k]];
        this.kindLength[kind] = cells[where[n] + 3 + 3 * k];
      }
      this.kindFrom[n + 1] = kind;
    }
  }
  get size() { return this.start.length + this.cellStart.length; }
  // The first stretch that ends after a moment, and the first that begins at or after another.
  between(from, to) { return [firstAbove(this.until, from), firstAtLeast(this.start, to)]; }
  cellsBetween(from, to) { return [firstAbove(this.cellStart, from - this.cell), firstAtLeast(this.cellStart, to)]; }
  // What lasted at a moment: the innermost stretch, else a cell; within so much of it.
  at(moment, near) {
    const [first, past] = this.between(moment - near, moment + near);
    let best = -1, apart = Infinity;
    for (let n = past - 1; n >= first && n > past - 4000; n--) {
      const end = this.start[n] + this.length[n];
      const off = moment < this.start[n] ? this.start[n] - moment : moment > end ? moment - end : 0;
      if (off <= near && off < apart) { best = n; apart = off; if (!off) break; }
    }
    if (best >= 0) return {kind: 'span', n: best};
    const cell = firstAbove(this.cellStart, moment) - 1;
    return cell >= 0 && moment < this.cellStart[cell] + this.cell ? {kind: 'cell', n: cell} : null;
  }
  partsOfCell(n) {
    const found = [], from = this.cellAt[n];
    for (let k = 0; k < this.cells[from + 1]; k++) found.push([this.cells[from + 2 + 3 * k], this.cells[from + 3 + 3 * k], this.cells[from + 4 + 3 * k]]);
    return found;
  }
  draw(pen, plot, y, height) {
    const [from, to] = plot.range, scale = plot.width / (to - from);
    this.drawCells(pen, from, to, scale, y, height);
    const [first, past] = this.between(from, to);
    const colours = PART_NAMES.map(colour);
    let lastDot = -1, lastPart = -1;
    for (let n = first; n < past; n++) {
      const begin = this.start[n], end = begin + this.length[n];
      if (end < from) continue;
      const part = PART_OF[this.label[n]];
      let x = (begin - from) * scale, wide = this.length[n] * scale;
      if (wide < 1) {
        const dot = Math.floor(x);
        if (dot === lastDot && part === lastPart) continue;
        lastDot = dot; lastPart = part;
        pen.fillStyle = colours[part];
        pen.fillRect(dot, y, 1, height);
        continue;
      }
      if (x < -2) { wide += x + 2; x = -2; }
      wide = Math.min(wide, plot.width + 4 - x);
      pen.fillStyle = colours[part];
      pen.fillRect(x, y, Math.max(1, wide - (wide > 4 ? 0.75 : 0)), height);
      if (wide > 34) this.write(pen, DATA.labels[this.label[n]][0], Math.max(x, 0), Math.min(wide + Math.min(0, x), plot.width - x), y, height, PART_NAMES[part]);
    }
  }
  write(pen, text, x, wide, y, height, part) {
    const fits = Math.floor((wide - 8) / 6.1);
    if (fits < 3) return;
    pen.fillStyle = inkOn(part);
    pen.fillText(text.length > fits ? text.slice(0, Math.max(1, fits - 1)) + '\u2026' : text, x + 4, y + height - 4.5);
  }
  drawCells(pen, from, to, scale, y, height) {
    const [first, past] = this.cellsBetween(from, to), wide = this.cell * scale;
    const colours = PART_NAMES.map(colour);
    let dot = -1, many = 0;
    const flush = () => {
      if (!many) return;
      const whole = wide < 1 ? Math.max(this.cell * many, this.cell / wide) : this.cell;
      let bottom = y + height;
      const x = wide < 1 ? dot : (this.cellStart[dot] - from) * scale;
      for (let part = 0; part < SUMS.length; part++) {
        if (!SUMS[part]) continue;
        const high = Math.max(0.5, Math.min(1, SUMS[part] / whole) * height);
        pen.fillStyle = colours[part];
        pen.fillRect(x, bottom - high, Math.max(1, wide), high);
        bottom -= high;
      }
      SUMS.fill(0);
      many = 0;
    };
    for (let n = first; n < past; n++) {
      const here = wide < 1 ? Math.floor((this.cellStart[n] - from) * scale) : n;
      if (here !== dot) { flush(); dot = here; }
      for (let kind = this.kindFrom[n]; kind < this.kindFrom[n + 1]; kind++) SUMS[this.kindPart[kind]] += this.kindLength[kind];
      many++;
    }
    flush();
  }
}
function firstAbove(sorted, value) {
  let low = 0, high = sorted.length;
  while (low < high) { const middle = (low + high) >> 1; if (sorted[middle] > value) high = middle; else low = middle + 1; }
  return low;
}
function firstAtLeast(sorted, value) {
  let low = 0, high = sorted.length;
  while (low < high) { const middle = (low + high) >> 1; if (sorted[middle] >= value) high = middle; else low = middle + 1; }
  return low;
}
// Black or white, whichever is easier to read on a colour.
const INK = new Map();
REDRAW.push(() => INK.clear());
function inkOn(part) {
  let ink = INK.get(part);
  if (!ink) {
    const [r, g, b] = [1, 3, 5].map((n) => parseInt(colour(part).slice(n, n + 2), 16) / 255).map((c) => c <= 0.04 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    ink = 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.26 ? '#10141a' : '#ffffff';
    INK.set(part, ink);
  }
  return ink;
}
