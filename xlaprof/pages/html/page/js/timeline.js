// The timeline: threads of the host, transfers, the device and its gaps; and where the findings happened.
const TIME = DATA.timeline;
const UNIT_S = TIME.unit_ns / 1e9;
const FINDING_ROWS = 8, FLAG = 13; // rows of findings, and their height
let timePlot = null, timeline = null;
function timelineSection() {
  if (!TIME.rows.length) return null;
  timeline = new Timeline();
  const left = TIME.rows_left_out ? `${plural(TIME.rows_left_out, 'row')} left out. ` : '';
  const grain = Math.max(0, ...timeline.rows.filter((row) => row.cellStart.length).map((row) => row.cell));
  const note = grain ? `A long run: what took less than ${duration(grain * UNIT_S)} is drawn as sums, but in close-ups. ` : '';
  return section('timeline', 'Timeline', note + left, timeline.element);
}
class Timeline {
  constructor() {
    this.rows = TIME.rows.map((told) => new Row(told));
    this.picked = null; // {row, hit}
    this.picks = h('div', {class: 'picked', id: 'picked', role: 'status', 'aria-live': 'polite'}, h('p', {class: 'soft', text: `Pick something on the timeline${TIME.rows.some((row) => row.of === 'gap') ? ': a gap of the device says what is to blame.' : '.'}`}));
    this.range = h('span', {class: 'range'});
    this.layOut();
    timePlot = new Plot({
      label: `Timeline of ${plural(this.rows.length, 'row')}: ${this.rows.map((row) => row.title).filter((title, n, all) => all.indexOf(title) === n).join(', ')}. Up and down choose a row, left and right what is in it, + and - zoom, a and d move, Home shows all.`,
      height: () => this.height, whole: TIME.wall, least: Math.max(20, TIME.wall / 1e8), draw: (...at) => this.draw(...at),
      hover: (...at) => this.hover(...at), pick: (...at) => this.click(...at), keys: (event) => this.keys(event),
    });
    const used = new Set();
    for (const row of this.rows) {
      for (let n = 0; n < row.label.length; n++) used.add(DATA.labels[row.label[n]][1]);
      for (let n = 0; n < row.cellStart.length; n++) for (const [label] of row.partsOfCell(n)) used.add(DATA.labels[label][1]);
    }
    const gaps = this.rows.find((row) => row.of === 'gap');
    const longest = gaps && gaps.start.length ? h('button', {type: 'button', text: 'Longest gap', onclick: () => this.longest()}) : null;
    const close = TIME.close_ups.length ? h('p', {class: 'links'}, 'Drawn in full: ', TIME.close_ups.map(([why, from, to], n) => [n ? ', ' : '', h('button', {type: 'button', class: 'link', text: why, onclick: () => timePlot.show(from / TIME.unit_ns, to / TIME.unit_ns)})])) : null;
    this.element = h('figure', null, h('div', {class: 'tools'}, timePlot.buttons(), longest, this.range), close, timePlot.element, legend([...used].sort()),
      h('p', {class: 'keys', text: 'Wheel over the timeline, once it is clicked, zooms; drag moves; double click zooms in.' + (gaps ? ' Idle time of the device has the colour of its cause.' : '') + (this.found.length ? ' The rows at the top: when each finding happened; a click leads to it.' : '')}),
      this.picks, more('What is in view, as a table', () => this.table()));
    timePlot.listeners.push(() => this.tellRange());
    this.tellRange();
  }
  layOut() {
    this.tops = [];
    this.found = DATA.findings.filter((one) => one.happened && one.happened.first.length).slice(0, FINDING_ROWS);
    let y = 18 + (this.found.length ? 15 + this.found.length * FLAG : 0), before = '';
    for (const row of this.rows) {
      if (row.title !== before) { y += 19; before = row.title; this.tops.push({caption: row.title, y: y - 5}); } else this.tops.push({y: 0});
      Object.assign(this.tops[this.tops.length - 1], {top: y});
      row.high = row.of === 'device' || row.of === 'gap' ? 20 : 16;
      y += row.high + 2;
    }
    this.height = y + 8;
  }
  tellRange() {
    const [from, to] = timePlot.range;
    this.range.textContent = `${duration(from * UNIT_S)} to ${duration(to * UNIT_S)}: ${duration((to - from) * UNIT_S)} of ${duration(TIME.wall * UNIT_S)}`;
  }
  draw(pen, width, height) {
    const [from, to] = timePlot.range;
    const [at, apart] = ticks(from * UNIT_S, to * UNIT_S, width, 110);
    pen.font = '11px system-ui, sans-serif';
    pen.textBaseline = 'alphabetic';
    for (const seconds of at) {
      const x = Math.round(timePlot.x(seconds / UNIT_S)) + 0.5;
      pen.strokeStyle = variable('--line');
      pen.beginPath(); pen.moveTo(x, 16); pen.lineTo(x, height); pen.stroke();
      pen.fillStyle = variable('--soft');
      pen.fillText(moment(seconds, apart), Math.min(x + 3, width - 60), 12);
    }
    this.drawFindings(pen, width);
    this.rows.forEach((row, n) => {
      const {caption, y, top} = this.tops[n];
      if (caption) { pen.fillStyle = variable('--soft'); pen.fillText(caption, 4, y + 1); }
      row.draw(pen, timePlot, top, row.high);
    });
    if (this.picked) {
      const [start, length] = this.extent(this.picked), row = this.picked.row;
      const x = Math.max(-4, timePlot.x(start)), end = Math.min(width + 4, timePlot.x(start + length)), top = this.tops[this.rows.indexOf(row)].top;
      pen.strokeStyle = variable('--text');
      pen.lineWidth = 2;
      if (end >= 0 && x <= width) pen.strokeRect(x, top - 1, Math.max(3, end - x), row.high + 2);
      pen.lineWidth = 1;
    }
    // where the view is in the run
    pen.fillStyle = variable('--line');
    pen.fillRect(0, height - 4, width, 4);
    pen.fillStyle = variable('--link');
    pen.fillRect(from / TIME.wall * width, height - 4, Math.max(3, (to - from) / TIME.wall * width), 4);
  }
  drawFindings(pen, width) {
    if (!this.found.length) return;
    pen.fillStyle = variable('--soft');
    pen.fillText('findings', 4, 29);
    this.found.forEach((finding, n) => {
      const y = 33 + n * FLAG, ink = variable(finding.severity === 'high' ? '--bad' : finding.severity === 'medium' ? '--warn' : '--note');
      pen.fillStyle = ink;
      for (const one of finding.happened.first) {
        const x = timePlot.x(one.at_ns / TIME.unit_ns), end = timePlot.x((one.at_ns + one.dur_ns) / TIME.unit_ns);
        if (end < -1 || x > width + 1) continue;
        pen.fillRect(Math.max(-2, x), y + 2, Math.max(2, Math.min(end, width + 2) - Math.max(-2, x)), FLAG - 4);
      }
      const text = `${finding.number} ${finding.kind}`;
      pen.globalAlpha = 0.92;
      pen.fillStyle = variable('--sunk');
      pen.fillRect(2, y, pen.measureText(text).width + 5, FLAG - 1);
      pen.globalAlpha = 1;
      pen.fillStyle = ink;
      pen.fillText(text, 4, y + 10);
    });
  }
  extent({row, hit}) {
    return hit.kind === 'span' ? [row.start[hit.n], row.length[hit.n]] : [row.cellStart[hit.n], row.cell];
  }
  find(x, y) {
    const row = this.rows.find((row, n) => y >= this.tops[n].top && y < this.tops[n].top + row.high);
    const [from, to] = timePlot.range;
    const hit = row && row.at(timePlot.value(x), 3 * (to - from) / Math.max(1, timePlot.width));
    return hit ? {row, hit} : null;
  }
  flagAt(x, y) {
    const finding = this.found[Math.floor((y - 33) / FLAG)];
    if (!finding || y < 33) return null;
    let best = null, apart = 8;
    for (const one of finding.happened.first) {
      const from = timePlot.x(one.at_ns / TIME.unit_ns), to = timePlot.x((one.at_ns + one.dur_ns) / TIME.unit_ns);
      const off = x < from ? from - x : x > to ? x - to : 0;
      if (off < apart) { best = one; apart = off; }
    }
    return [finding, best];
  }
  hover(x, y) {
    const flag = this.flagAt(x, y);
    if (flag) {
      const [finding, one] = flag;
      timePlot.tell(x, y, h('b', {class: 'text', text: `${finding.number} ${finding.kind} ${finding.where}`}), one ? h('div', {text: `${one.at}, ${one.step}, ${one.dur}`}) : null, one && one.told ? h('div', {class: 'text', text: one.told}) : null);
      return;
    }
    const found = this.find(x, y);
    if (!found) { timePlot.tell(); return; }
    timePlot.tell(x, y, ...short(found));
  }
  click(x, y) {
    const flag = this.flagAt(x, y);
    if (flag) { goToFinding(flag[0].number); return; }
    const found = this.find(x, y);
    if (found) this.pick(found.row, found.hit);
  }
  pick(row, hit) {
    this.picked = {row, hit};
    const [start, length] = this.extent(this.picked), [from, to] = timePlot.range;
    timePlot.focusAt = start + length / 2;
    if (start > to || start + length < from) timePlot.show(start + length / 2 - (to - from) / 2, start + length / 2 + (to - from) / 2);
    fill(this.picks, told(this.picked));
    timePlot.redraw();
  }
  show(fromNs, toNs) {
    const from = fromNs / TIME.unit_ns, to = Math.max(from + 1, toNs / TIME.unit_ns), room = (to - from) * 0.6;
    timePlot.show(from - room, to + room);
  }
  // Show what happened at a moment, and pick it: of the host, or of the device's gaps.
  goTo(fromNs, toNs) {
    this.show(fromNs, toNs);
    const at = fromNs / TIME.unit_ns, near = Math.max(1, (toNs - fromNs) / TIME.unit_ns * 0.02);
    for (const of of ['host', 'gap', 'steps', 'device', 'other']) {
      const row = this.rows.find((one) => one.of === of && one.at(at + 1e-6, near));
      if (row) { this.pick(row, row.at(at + 1e-6, near)); break; }
    }
    go(document.getElementById('timeline'), timePlot.canvas);
  }
  longest() {
    const row = this.rows.find((one) => one.of === 'gap');
    let best = 0;
    for (let n = 1; n < row.length.length; n++) if (row.length[n] > row.length[best]) best = n;
    const room = row.length[best] * 0.6;
    timePlot.show(row.start[best] - room, row.start[best] + row.length[best] + room);
    this.pick(row, {kind: 'span', n: best});
  }
  keys(event) {
    const across = {ArrowLeft: -1, ArrowRight: 1}[event.key], down = {ArrowUp: -1, ArrowDown: 1}[event.key];
    if (!across && !down) {
      if (event.key === 'Enter' && this.picked) { const [start, length] = this.extent(this.picked); timePlot.show(start - length, start + 2 * length); return true; }
      return false;
    }
    const usable = this.rows.filter((row) => row.size);
    if (!usable.length) return false;
    const now = this.picked || {row: usable[0], hit: null};
    const middle = now.hit ? this.extent(now)[0] + this.extent(now)[1] / 2 : timePlot.range[0];
    if (down) {
      const row = usable[Math.max(0, Math.min(usable.length - 1, usable.indexOf(now.row) + (now.hit ? down : 0)))];
      this.pick(row, this.nearest(row, middle));
      return true;
    }
    if (!now.hit) { this.pick(now.row, this.nearest(now.row, middle)); return true; }
    const many = now.hit.kind === 'span' ? now.row.start.length : now.row.cellStart.length, next = now.hit.n + across;
    if (next >= 0 && next < many) this.pick(now.row, {kind: now.hit.kind, n: next});
    return true;
  }
  nearest(row, moment) {
    const hit = row.at(moment, 0);
    if (hit) return hit;
    if (!row.start.length) return {kind: 'cell', n: Math.max(0, firstAbove(row.cellStart, moment) - 1)};
    const next = Math.min(row.start.length - 1, firstAtLeast(row.start, moment));
    return {kind: 'span', n: next > 0 && moment - row.start[next - 1] < row.start[next] - moment ? next - 1 : next};
  }
  inView() {
    const [from, to] = timePlot.range, found = [];
    for (const row of this.rows) {
      const [first, past] = row.between(from, to);
      for (let n = first; n < past && found.length < 5000; n++) if (row.start[n] + row.length[n] >= from) found.push({row, hit: {kind: 'span', n}});
      const [cell, pastCell] = row.cellsBetween(from, to);
      for (let n = cell; n < pastCell && found.length < 5000; n++) found.push({row, hit: {kind: 'cell', n}});
    }
    return found;
  }
  table() {
    const holder = h('div');
    const build = () => fill(holder, h('button', {type: 'button', class: 'onscreen', text: 'Take what is in view now', onclick: build}), table(`From ${duration(timePlot.range[0] * UNIT_S)} to ${duration(timePlot.range[1] * UNIT_S)}`, [
      {title: 'at', number: true, key: (one) => this.extent(one)[0], show: (one) => duration(this.extent(one)[0] * UNIT_S)},
      {title: 'row', key: (one) => one.row.title, show: (one) => one.row.title},
      {title: 'what', key: (one) => name(one), show: (one) => h('button', {type: 'button', class: 'link text', text: name(one), onclick: () => { this.pick(one.row, one.hit); this.picks.scrollIntoView({block: 'nearest'}); }})},
      {title: 'lasted', number: true, key: (one) => this.extent(one)[1], show: (one) => duration(this.extent(one)[1] * UNIT_S)},
      {title: 'line', show: (one) => { const where = placeOf(one); return where ? where.short : ''; }},
    ], this.inView()));
    build();
    return holder;
  }
}
function goToTimeline(fromNs, toNs) { if (timeline) timeline.goTo(fromNs, toNs); }
