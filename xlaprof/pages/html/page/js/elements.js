// Elements of the page. Text goes in as text nodes only: nothing in the data can be markup.
function h(tag, props, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props || NOTHING)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === 'class') element.className = value;
    else if (name === 'text') element.textContent = value;
    else if (name === 'style') Object.assign(element.style, value);
    else if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? '' : String(value));
  }
  append(element, children);
  return element;
}
function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false || child === '') continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}
function fill(element, ...children) {
  element.replaceChildren();
  append(element, children);
}
function svg(tag, props, ...children) {
  const element = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [name, value] of Object.entries(props || NOTHING)) element.setAttribute(name, String(value));
  element.append(...children);
  return element;
}
const SECTIONS = [];
// A part of the page, with its place in the navigation.
function section(id, title, note, ...children) {
  SECTIONS.push([id, title]);
  return h('section', {id, 'aria-labelledby': id + '-title', tabindex: '-1'},
    h('header', null, h('h2', {id: id + '-title', text: title}), note ? h('p', {class: 'text', text: note}) : null), children);
}
function more(summary, build, open) {
  const details = h('details', {class: 'more', open: open || null}, h('summary', {text: summary}));
  let built = false;
  const fillIn = () => {
    if (details.open && !built) { built = true; append(details, [build()]); }
  };
  details.addEventListener('toggle', fillIn);
  fillIn();
  return details;
}
// A list of which only the first are built at once.
function paged(items, many, build, holder) {
  const rest = h('button', {type: 'button'});
  let shown = 0;
  const next = (upTo) => {
    holder.append(...items.slice(shown, upTo).map(build));
    shown = Math.min(items.length, upTo);
    rest.textContent = `Show ${items.length - shown} more`;
    rest.hidden = shown >= items.length;
  };
  rest.addEventListener('click', () => next(shown + many));
  holder.reveal = (index) => { if (index >= shown) next(index + 1); };
  holder.revealAll = () => next(items.length);
  next(many);
  return [holder, rest];
}
function place(number) { return number ? DATA.places[number] : null; }
// A line of code by its short name; the long one is said to who asks.
function placeName(where, prefix) {
  if (!where) return null;
  const target = sourceLine(where.file, where.line);
  const name = target
    ? h('button', {type: 'button', class: 'link mono text', title: where.where, text: where.short, onclick: () => goToSource(where.file, where.line)})
    : h('span', {class: 'mono text', title: where.where, text: where.short});
  return h('span', {class: 'text'}, prefix || null, name, where.func ? h('span', {class: 'soft'}, ' in ', where.func) : null,
    where.code ? [' ', h('code', {class: 'soft text', text: where.code})] : null);
}
function go(element, focus) {
  for (let at = element; at; at = at.parentElement) if (at.tagName === 'DETAILS') at.open = true;
  element.scrollIntoView({block: 'start'});
  (focus || element).focus({preventScroll: true});
}
function goToSection(id) { go(document.getElementById(id)); }
