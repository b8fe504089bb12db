// Search over all that the page holds: findings, lines, graphs, functions, breaks, scopes, what is on the timeline.
function searchIndex() {
  const found = [];
  const add = (kind, text, act) => { if (text) found.push({kind, text, low: text.toLowerCase(), act}); };
  for (const one of DATA.findings) add('finding', `${one.number} ${one.kind} ${one.where} ${one.operation} ${one.cause} ${one.advice} ${one.id} ${one.code.lines.filter((line) => line[2]).map((line) => line[1].trim()).join(' ')} ${one.evidence.join(' ')}`, () => goToFinding(one.number));
  for (const one of DATA.accounts) add('account', one.text, () => goToSection('time'));
  for (const one of DATA.graphs.rows) {
    const where = place(one.place), d = one.difference;
    add('graph', `graph ${one.program}: ${one.ops} operations ${where ? `${where.short} ${where.code}` : ''} ${d ? `${d.text} ${d.old} ${d.new}` : ''}`, () => goToSection('graphs'));
  }
  for (const [id, rows] of [['torch', DATA.torch_compile.rows], ['jax', DATA.jax.rows]]) for (const one of rows) add('function', `${one.name} ${(place(one.place) || {where: ''}).where}`, () => goToSection(id));
  const walk = (one) => { add('graph break', `${one.reason} ${(place(one.place) || {short: ''}).short} ${one.explanation} ${one.hint}`, () => goToSection('breaks')); one.breaks.forEach(walk); };
  for (const tree of DATA.breaks) tree.breaks.forEach(walk);
  for (const one of DATA.scopes) add('scope', one.name, () => goToSection('scopes'));
  for (const one of DATA.transfers) add('transfer', `${one.way} ${one.op} ${(place(one.place) || {where: ''}).where}`, () => goToSection('transfers'));
  for (const file of DATA.files) for (const line of file.lines) if (line.seconds !== undefined) add('line', `${file.file}:${line.n} ${line.code.trim()} ${line.items.map((item) => item[3]).join(' ')}`, () => goToSource(file.file, line.n));
  for (const cause of DATA.idle.causes) add('idle', cause[0], () => goToSection('time'));
  for (const counter of DATA.counters) add('counter', counter[0], () => goToSection('counters'));
  DATA.labels.slice(0, 5000).forEach(([text], label) => add('timeline', text, () => {
    for (const row of timeline ? timeline.rows : []) {
      const n = row.label.indexOf(label);
      if (n >= 0) { timeline.goTo(row.start[n] * TIME.unit_ns, (row.start[n] + Math.max(1, row.length[n])) * TIME.unit_ns); timeline.pick(row, {kind: 'span', n}); return; }
    }
    goToSection('timeline');
  }));
  return found;
}
function searchBox() {
  let index = null, chosen = 0, hits = [];
  const list = h('ul', {class: 'results', id: 'results', role: 'listbox', 'aria-label': 'Results', hidden: true});
  const input = h('input', {type: 'search', id: 'search', placeholder: 'Search (/)', 'aria-label': 'Search the report', role: 'combobox', 'aria-expanded': 'false', 'aria-controls': 'results', 'aria-autocomplete': 'list', autocomplete: 'off', spellcheck: 'false', maxlength: '200'});
  const said = h('span', {class: 'unseen', role: 'status', 'aria-live': 'polite'});
  const close = () => { list.hidden = true; input.setAttribute('aria-expanded', 'false'); input.removeAttribute('aria-activedescendant'); };
  const choose = (n) => {
    chosen = n;
    [...list.children].forEach((one, at) => one.setAttribute('aria-selected', String(at === n && hits.length > 0)));
    const one = list.children[n];
    if (one && hits.length) { one.scrollIntoView({block: 'nearest'}); input.setAttribute('aria-activedescendant', one.id); }
  };
  const take = (n) => { const hit = hits[n]; if (hit) { close(); hit.act(); } };
  const seek = () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    if (!words.length) { close(); said.textContent = ''; return; }
    index = index || searchIndex();
    hits = [];
    let all = 0;
    for (const one of index) if (words.every((word) => one.low.includes(word))) { all++; if (hits.length < 40) hits.push(one); }
    fill(list, hits.length ? hits.map((hit, n) => h('li', {role: 'option', id: `result-${n}`, 'aria-selected': 'false', onclick: () => take(n)}, h('span', {class: 'kind', text: hit.kind}), h('span', {class: 'text', text: excerpt(hit.text, words[0])}))) : h('li', {class: 'soft', text: 'Nothing found'}));
    list.hidden = false;
    input.setAttribute('aria-expanded', 'true');
    said.textContent = all ? `${plural(all, 'result')}` : 'Nothing found';
    choose(0);
  };
  input.addEventListener('input', seek);
  input.addEventListener('focus', () => { if (input.value) seek(); });
  input.addEventListener('keydown', (event) => {
    if (event.key === 'ArrowDown' || event.key === 'ArrowUp') { if (hits.length) choose((chosen + (event.key === 'ArrowDown' ? 1 : -1) + hits.length) % hits.length); event.preventDefault(); }
    else if (event.key === 'Enter') { if (!list.hidden) take(chosen); event.preventDefault(); }
    else if (event.key === 'Escape') { input.value = ''; close(); event.preventDefault(); }
  });
  document.addEventListener('pointerdown', (event) => { if (!box.contains(event.target)) close(); });
  document.addEventListener('keydown', (event) => {
    if (event.key === '/' && !event.ctrlKey && !event.metaKey && !/^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement.tagName)) { event.preventDefault(); input.focus(); input.select(); }
  });
  const box = h('div', {class: 'find', role: 'search'}, input, list, said);
  return box;
}
function excerpt(text, word) {
  if (text.length <= 220) return text;
  const at = text.toLowerCase().indexOf(word);
  if (at < 160) return `${text.slice(0, 220)}\u2026`;
  return `${text.slice(0, 80)} \u2026 ${text.slice(at - 40, at + 100)}${at + 100 < text.length ? '\u2026' : ''}`;
}
