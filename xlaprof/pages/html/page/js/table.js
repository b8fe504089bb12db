// Tables: sorted by any column, by mouse and keys; long ones in parts.
function table(caption, columns, rows, options) {
  const {many = 50, id = null, rowClass = null} = options || NOTHING;
  let order = rows.slice(), by = -1, down = false;
  const body = h('tbody');
  const heads = columns.map((column, number) => {
    const button = h('button', {type: 'button', text: column.title, onclick: () => sort(number)});
    return h('th', {scope: 'col', class: column.number ? 'n' : null}, column.key ? button : column.title);
  });
  const rest = h('button', {type: 'button', class: 'onscreen', onclick: () => build(shown + many)});
  let shown = 0;
  const row = (one) => h('tr', {class: rowClass ? rowClass(one) : null}, columns.map((column) => {
    const cell = h('td', {class: column.number ? 'n' : 't'});
    append(cell, [column.show(one)]);
    return cell;
  }));
  function build(upTo) {
    body.append(...order.slice(shown, upTo).map(row));
    shown = Math.min(order.length, upTo);
    rest.textContent = `Show ${count(order.length - shown)} more`;
    rest.hidden = shown >= order.length;
  }
  function sort(number) {
    down = by === number ? !down : Boolean(columns[number].number);
    by = number;
    const key = columns[number].key;
    order.sort((a, b) => (key(a) < key(b) ? -1 : key(a) > key(b) ? 1 : 0) * (down ? -1 : 1));
    heads.forEach((head, n) => n === number ? head.setAttribute('aria-sort', down ? 'descending' : 'ascending') : head.removeAttribute('aria-sort'));
    body.replaceChildren();
    shown = 0;
    build(many);
  }
  build(many);
  return h('div', {id}, h('div', {class: 'scroll', tabindex: '0', role: 'group', 'aria-label': caption},
    h('table', null, h('caption', {text: caption}), h('thead', null, h('tr', null, heads)), body)), rest);
}
