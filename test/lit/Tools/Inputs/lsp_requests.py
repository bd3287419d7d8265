"""Prints the requests of an editor that opens a module with an error in it."""
import json

text = '''func.func @f(%x: tensor<?x4xf32>) -> tensor<?x2xf32> {
  %y = llm.columns %x from 3 : tensor<?x4xf32> -> tensor<?x2xf32>
  return %y : tensor<?x2xf32>
}
'''


def send(method, params, number=None):
    message = {'jsonrpc': '2.0', 'method': method, 'params': params}
    if number is not None:
        message['id'] = number
    body = json.dumps(message)
    print(f'Content-Length: {len(body)}\r\n\r\n{body}', end='')


send('initialize', {'processId': 1, 'rootUri': None, 'capabilities': {}}, 0)
send('initialized', {})
send('textDocument/didOpen', {'textDocument': {'uri': 'test:///module.mlir', 'languageId': 'mlir', 'version': 1, 'text': text}})
send('shutdown', {}, 1)
send('exit', {})
