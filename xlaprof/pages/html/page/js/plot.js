// A canvas with a range of its horizontal axis, which is zoomed and panned by wheel, fingers, buttons and keys.
class Plot {
  constructor({label, height, whole, least, draw, hover, pick, keys}) {
    this.whole = whole; // the end of the axis; it begins at 0
    this.least = least; // the shortest range
    this.range = [0, whole];
    this.draw = draw;
    this.listeners = [];
    this.canvas = h('canvas', {tabindex: '0', role: 'application', 'aria-roledescription': 'chart', 'aria-label': label});
    this.tip = h('div', {class: 'tip', hidden: true, 'aria-hidden': 'true'});
    this.element = h('div', {class: 'chart'}, this.canvas, this.tip);
    this.height = height;
    this.hover = hover;
    this.pick = pick;
    this.pointers = new Map();
    this.moved = 0;
    this.waiting = false;
    this.listen(keys);
    new ResizeObserver(() => this.redraw()).observe(this.element);
    REDRAW.push(() => this.redraw());
  }
  get width() { return this.element.clientWidth; }
  x(value) { return (value - this.range[0]) / (this.range[1] - this.range[0]) * this.width; }
  value(x) { return this.range[0] + x / Math.max(1, this.width) * (this.range[1] - this.range[0]); }
  redraw() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => { this.waiting = false; this.paint(); });
  }
  paint() {
    const width = this.width, height = this.height(), scale = Math.min(3, window.devicePixelRatio || 1);
    if (!width) return;
    const across = Math.round(width * scale), down = Math.round(height * scale);
    if (this.canvas.width !== across || this.canvas.height !== down) {
      this.canvas.width = across;
      this.canvas.height = down;
      this.canvas.style.height = `${height}px`;
    }
    const pen = this.canvas.getContext('2d');
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.clearRect(0, 0, width, height);
    this.draw(pen, width, height);
    this.painted = (this.painted || 0) + 1;
  }
  show(from, to) {
    let span = Math.min(this.whole, Math.max(this.least, to - from));
    let begin = (from + to) / 2 - span / 2;
    begin = Math.max(0, Math.min(this.whole - span, begin));
    this.range = [begin, begin + span];
    for (const listener of this.listeners) listener();
    this.redraw();
  }
  zoom(factor, around) {
    const [from, to] = this.range, at = around === undefined ? (from + to) / 2 : around;
    const span = Math.min(this.whole, Math.max(this.least, (to - from) * factor));
    const left = at - (at - from) / (to - from) * span;
    this.show(left, left + span);
  }
  pan(share) {
    const by = (this.range[1] - this.range[0]) * share;
    this.show(this.range[0] + by, this.range[1] + by);
  }
  tell(x, y, ...children) {
    if (!children.length) { this.tip.hidden = true; return; }
    fill(this.tip, ...children);
    this.tip.hidden = false;
    const left = Math.max(4, Math.min(x + 12, this.width - this.tip.offsetWidth - 4));
    const top = y + 16 + this.tip.offsetHeight > this.height() ? Math.max(4, y - this.tip.offsetHeight - 10) : y + 16;
    this.tip.style.left = `${left}px`;
    this.tip.style.top = `${top}px`;
  }
  listen(keys) {
    const canvas = this.canvas, spot = (event) => {
      const box = canvas.getBoundingClientRect();
      return [event.clientX - box.left, event.clientY - box.top];
    };
    canvas.addEventListener('wheel', (event) => {
      const [x] = spot(event), focused = document.activeElement === canvas;
      if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) this.pan(event.deltaX / this.width);
      else if (event.ctrlKey || event.metaKey || focused) this.zoom(Math.exp(Math.max(-1, Math.min(1, event.deltaY / 240))), this.value(x));
      else return;
      event.preventDefault();
    }, {passive: false});
    canvas.addEventListener('pointerdown', (event) => {
      if (event.button > 0) return;
      this.pointers.set(event.pointerId, spot(event));
      this.moved = 0;
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener('pointermove', (event) => {
      const now = spot(event), before = this.pointers.get(event.pointerId);
      if (!before) { this.hover(...now); return; }
      const others = [...this.pointers].filter(([id]) => id !== event.pointerId).map(([, at]) => at);
      if (others.length) {
        const apart = Math.max(10, Math.abs(now[0] - others[0][0])), was = Math.max(10, Math.abs(before[0] - others[0][0]));
        this.zoom(was / apart, this.value((now[0] + others[0][0]) / 2));
      } else if (Math.abs(now[0] - before[0]) > 0) {
        this.pan((before[0] - now[0]) / Math.max(1, this.width));
      }
      this.moved += Math.abs(now[0] - before[0]) + Math.abs(now[1] - before[1]);
      this.pointers.set(event.pointerId, now);
    });
    const end = (event) => {
      const there = this.pointers.delete(event.pointerId);
      if (there && event.type === 'pointerup' && this.moved < 6) this.pick(...spot(event));
    };
    canvas.addEventListener('pointerup', end);
    canvas.addEventListener('pointercancel', end);
    canvas.addEventListener('pointerleave', () => this.tell());
    canvas.addEventListener('dblclick', (event) => this.zoom(0.25, this.value(spot(event)[0])));
    canvas.addEventListener('keydown', (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const done = keys(event) || this.key(event.key);
      if (done) event.preventDefault();
    });
  }
  key(key) {
    if (key === '+' || key === '=') this.zoom(0.5, this.focusAt);
    else if (key === '-') this.zoom(2, this.focusAt);
    else if (key === 'Home' || key === '0') this.show(0, this.whole);
    else if (key === 'a') this.pan(-0.5);
    else if (key === 'd') this.pan(0.5);
    else return false;
    return true;
  }
  buttons() {
    const one = (text, label, act) => h('button', {type: 'button', 'aria-label': label, title: label, text, onclick: act});
    return [one('+', 'Zoom in', () => this.zoom(0.5, this.focusAt)), one('-', 'Zoom out', () => this.zoom(2, this.focusAt)),
      one('<', 'Earlier', () => this.pan(-0.5)), one('>', 'Later', () => this.pan(0.5)),
      one('All', 'Show all', () => this.show(0, this.whole))];
  }
}
// Round numbers along an axis, at most one in so many pixels.
function ticks(from, to, width, every) {
  const rough = (to - from) / Math.max(1, Math.floor(width / every));
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough * 0.999) || rough;
  const found = [];
  for (let at = Math.ceil(from / step) * step; at <= to; at += step) found.push(at);
  return [found, step];
}
