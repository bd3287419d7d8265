// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
// What the model says is put into the page as text, never as HTML. The key lives in its input field and nowhere else.
'use strict';
const $ = id => document.getElementById(id);
let messages = [], running = null;

function headers() {
  const key = $('key').value.trim();
  return { 'Content-Type': 'application/json', ...(key ? { Authorization: 'Bearer ' + key } : {}) };
}

async function errorOf(response) {
  try { return (await response.json()).error.message; } catch { return 'status ' + response.status; }
}

function say(text) { $('status').textContent = text; }

function addTurn(role, text) {
  const turn = document.createElement('div');
  turn.className = 'turn ' + role;
  turn.textContent = text;
  $('chat').append(turn);
  turn.scrollIntoView({ block: 'end' });
  return turn;
}

async function loadModels() {
  try {
    const response = await fetch('v1/models', { headers: headers() });
    if (response.status === 401) return say('This server asks for a key: enter yours above.');
    if (!response.ok) return say(await errorOf(response));
    const chosen = $('model').value;
    $('model').replaceChildren(...(await response.json()).data.map(model => new Option(model.id)));
    if (chosen) $('model').value = chosen;
    say('');
  } catch { say('The server does not answer.'); }
}

// Calls onData with each data of a stream of server-sent events.
async function readEvents(body, onData) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let held = '';
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    held += value;
    for (let end; (end = held.indexOf('\n\n')) >= 0; held = held.slice(end + 2))
      for (const line of held.slice(0, end).split('\n'))
        if (line.startsWith('data: ')) onData(line.slice(6));
  }
}

async function ask(text) {
  messages.push({ role: 'user', content: text });
  addTurn('user', text);
  const turn = addTurn('assistant', ''), words = document.createTextNode('');
  turn.append(words);
  const request = { model: $('model').value, messages, stream: true, stream_options: { include_usage: true },
                    max_tokens: Number($('tokens').value) || 512 };
  if ($('temperature').value !== '') request.temperature = Number($('temperature').value);
  running = new AbortController();
  $('send').hidden = true;
  $('stop').hidden = false;
  const begin = performance.now();
  let first = 0, usage = null, answer = '', failure = '';
  try {
    const response = await fetch('v1/chat/completions',
      { method: 'POST', headers: headers(), body: JSON.stringify(request), signal: running.signal });
    if (!response.ok) failure = await errorOf(response);
    else await readEvents(response.body, data => {
      if (data === '[DONE]') return;
      const event = JSON.parse(data);
      if (event.error) failure = event.error.message;
      if (event.usage) usage = event.usage;
      const piece = event.choices?.[0]?.delta?.content;
      if (!piece) return;
      first ||= performance.now();
      answer += piece;
      words.data = answer;
      const chat = $('chat');
      if (chat.scrollHeight - chat.scrollTop - chat.clientHeight < 120) chat.scrollTop = chat.scrollHeight;
    });
  } catch (error) {
    failure = error.name === 'AbortError' ? '' : 'The connection broke.';
  }
  const end = performance.now();
  running = null;
  $('send').hidden = false;
  $('stop').hidden = true;
  if (answer) messages.push({ role: 'assistant', content: answer });
  else messages.pop();
  if (failure) {
    turn.classList.add('failed');
    words.data = answer + (answer ? '\n' : '') + failure;
  }
  if (usage) {
    const figures = document.createElement('span'), cached = usage.prompt_tokens_details.cached_tokens;
    const rate = usage.completion_tokens > 1 ? (usage.completion_tokens - 1) / (end - first) * 1000 : 0;
    figures.className = 'figures';
    figures.textContent = `${usage.prompt_tokens} tokens in (${cached} cached), ${usage.completion_tokens} out, ` +
      `first after ${Math.round(first - begin)} ms, ${rate.toFixed(1)} tokens/s`;
    turn.append(figures);
  }
  turn.scrollIntoView({ block: 'end' });
}

// The text format of Prometheus: sums over models, by name.
function parseMetrics(text) {
  const values = new Map();
  for (const line of text.split('\n')) {
    const match = /^lathe:([a-z0-9_]+)(?:\{([^}]*)\})? (\S+)/.exec(line);
    if (!match || match[2]?.includes('le="')) continue;
    values.set(match[1], (values.get(match[1]) || 0) + Number(match[3]));
  }
  return values;
}

let before = null;
async function watch() {
  if (document.hidden) return;
  let text;
  try {
    const response = await fetch('metrics', { headers: headers() });
    if (!response.ok) return void ($('gauge-note').textContent = response.status === 401 ? 'needs a key' : '');
    text = await response.text();
  } catch { return; }
  $('gauge-note').textContent = '';
  const now = parseMetrics(text), time = performance.now() / 1000;
  const v = name => now.get(name) || 0;
  const rate = name => before && time > before.time ? (v(name) - (before.values.get(name) || 0)) / (time - before.time) : 0;
  const ratio = (a, b) => b ? a / b : 0;
  const rows = [
    ['running', v('num_requests_running')],
    ['waiting', v('num_requests_waiting')],
    ['KV cache', ratio(v('kv_cache_usage_perc'), Math.max(1, $('model').length)), 'share'],
    ['prefix hits', ratio(v('prefix_cache_hits_total'), v('prefix_cache_queries_total')), 'share'],
    ['device busy', ratio(v('device_busy_share'), Math.max(1, $('model').length)), 'share'],
    ['tokens/s out', rate('generation_tokens_total').toFixed(1)],
    ['tokens/s in', rate('prompt_tokens_total').toFixed(1)],
    ['first token', ms(ratio(v('time_to_first_token_seconds_sum'), v('time_to_first_token_seconds_count')))],
    ['between tokens', ms(ratio(v('inter_token_latency_seconds_sum'), v('inter_token_latency_seconds_count')))],
    ['preemptions', v('num_preemptions_total')],
    ['connections', v('http_connections')],
  ];
  $('gauges').replaceChildren(...rows.flatMap(([name, value, kind]) => {
    const dt = document.createElement('dt'), dd = document.createElement('dd');
    dt.textContent = name;
    if (kind === 'share') {
      const meter = document.createElement('meter');
      meter.value = value;
      dd.append(meter, ` ${Math.round(value * 100)} %`);
    } else dd.textContent = value;
    return [dt, dd];
  }));
  before = { time, values: now };
}
const ms = seconds => seconds ? (seconds * 1000).toFixed(1) + ' ms' : '-';

$('ask').addEventListener('submit', event => {
  event.preventDefault();
  const text = $('text').value.trim();
  if (!text || running) return;
  $('text').value = '';
  ask(text);
});
$('text').addEventListener('keydown', event => {
  if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    $('ask').requestSubmit();
  }
});
$('stop').addEventListener('click', () => running?.abort());
$('clear').addEventListener('click', () => {
  running?.abort();
  messages = [];
  $('chat').replaceChildren();
});
$('key').addEventListener('change', () => { loadModels(); watch(); });
loadModels();
watch();
setInterval(watch, 2000);
