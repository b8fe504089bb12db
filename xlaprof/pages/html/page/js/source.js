// The program's code around lines that cost something, with their costs in the gutter.
const SOURCE = new Map(); // file -> line -> element
function sourceLine(file, line) {
  const found = DATA.files.find((one) => one.file === file);
  return found && found.lines.some((one) => one.n === line && (one.seconds !== undefined)) ? found : null;
}
function goToSource(file, line) {
  const holder = document.getElementById(`file-${DATA.files.findIndex((one) => one.file === file)}`);
  if (!holder) return;
  holder.open = true;
  const build = SOURCE.get(file);
  const element = build().get(line);
  if (element) go(element);
}
function sourceSection() {
  const files = DATA.files;
  if (!files.length) return null;
  return section('source', 'Source', 'Lines that cost something, with the code around them. A line opens to what it cost.', files.map(fileItem));
}
function fileItem(file, number) {
  const most = Math.max(1e-12, ...file.lines.map((line) => line.seconds || 0));
  const holder = h('div', {class: 'codebox gutter mono'});
  const lines = new Map();
  let built = false;
  const build = () => {
    if (built) return lines;
    built = true;
    let before = 0;
    for (const line of file.lines) {
      if (before && line.n !== before + 1) holder.append(h('div', {class: 'jump', 'aria-hidden': 'true'}));
      before = line.n;
      const element = lineItem(line, most);
      lines.set(line.n, element[0]);
      append(holder, element);
    }
    return lines;
  };
  SOURCE.set(file.file, build);
  const costly = file.lines.filter((line) => line.seconds !== undefined);
  const details = h('details', {class: 'file', id: `file-${number}`, open: number === 0 || null},
    h('summary', null, h('span', {class: 'mono text', text: file.file}), h('span', {class: 'soft', text: file.text})),
    file.remarks.map((remark) => h('p', {class: 'remark', style: {padding: '0 12px'}, text: remark})), holder);
  details.addEventListener('toggle', () => { if (details.open) build(); });
  if (number === 0) build();
  details.dataset.costly = costly.length;
  return details;
}
function lineItem(line, most) {
  const costed = line.seconds !== undefined;
  const heat = h('span', {class: 'heat', 'aria-hidden': 'true'});
  for (const [part, seconds] of line.items || []) {
    const bar = h('i');
    bar.style.width = `${seconds / most * 100}%`;
    bar.style.background = `var(${VARIABLES[part] || '--p-other'})`;
    heat.append(bar);
  }
  const found = (line.findings || []).length;
  const row = h('div', {class: `l${costed ? ' cost' : ''}${found ? ' marked' : ''}`, ...(costed ? {tabindex: '0', role: 'button', 'aria-expanded': 'false'} : NOTHING)},
    h('span', {class: 'g'}, costed ? [heat, h('span', {text: line.text})] : null), h('span', {class: 'n', text: line.n}), h('span', {class: 'c', text: line.code || ' '}));
  if (!costed) return [row];
  const why = h('div', {class: 'why', hidden: true}, line.items.map(([part, , figure, text]) => h('div', {class: 'text'}, swatch(part), figure ? h('b', {text: `${figure} `}) : null, text)), line.findings.map((number) => h('div', null, findingLink(number))));
  const toggle = () => { why.hidden = !why.hidden; row.setAttribute('aria-expanded', String(!why.hidden)); };
  row.addEventListener('click', toggle);
  row.addEventListener('keydown', (event) => { if (event.key === 'Enter' || event.key === ' ') { event.preventDefault(); toggle(); } });
  return [row, why];
}
