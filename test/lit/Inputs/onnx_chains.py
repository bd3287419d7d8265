"""onnx_chains.py CHAIN: raises a graph that is as long or as large as a damaged file may make one, in bounded time, stack and memory, and prints the warning.

CHAIN is casts (150,000 of them behind a lookup), products (each of two that share one), numbers (more of them at a time than a run holds), wide (terms of 1000 that
are of 1000 each), axes (100,000 of them through 1000 nodes), or elements (more than 64 bits count).
"""
import resource
import subprocess
import sys

ANY = 'tensor<*x!onnx.any>'


def node(name, inputs, version, attrs=''):
    types = ', '.join(t for _, t in inputs)
    return f'onnx.op "{name}"({", ".join(v for v, _ in inputs)}) {{version = {version} : i64{", attrs = {" + attrs + "}" if attrs else ""}}} : ({types}) -> {ANY}'


ids, positions, table = ('%ids', 'tensor<?x?xi64>'), ('%positions', 'tensor<?x?xi64>'), ('%e', 'tensor<64x4xf32>')
body = [f'%x = {node("Gather", [table, ids], 13)}']
x = ('%x', ANY)
if sys.argv[1] == 'casts':
    body.append(f'%c0 = {node("Gather", [table, positions], 13)}')
    body += [f'%c{k + 1} = {node("Cast", [(f"%c{k}", ANY)], 13, "to = 1 : i64")}' for k in range(150000)]
    body.append(f'%y = {node("Add", [x, ("%c150000", ANY)], 14)}')
elif sys.argv[1] == 'products':
    body += ['%half = onnx.constant dense<1.5> : tensor<f32>', f'%m0 = {node("Identity", [x], 13)}']
    for k in range(60):
        body.append(f'%s{k} = {node("Mul", [(f"%m{k}", ANY), ("%half", "tensor<f32>")], 14)}')
        body.append(f'%m{k + 1} = {node("Mul", [(f"%m{k}", ANY), (f"%s{k}", ANY)], 14)}')
    body.append(f'%y = {node("Identity", [("%m60", ANY)], 13)}')
elif sys.argv[1] == 'wide':
    body += ['%two = onnx.constant dense<2> : tensor<1xi64>', '%six = onnx.constant dense<6> : tensor<1xi64>']
    part, two, six = x, ('%two', 'tensor<1xi64>'), ('%six', 'tensor<1xi64>')
    for k in range(3):
        body.append(f'%w{k} = {node("Concat", [part] * 1000, 13, "axis = -1 : i64")}')
        body.append(f'%p{k} = {node("Slice", [(f"%w{k}", ANY), two, six, two], 13)}')
        part = (f'%p{k}', ANY)
    body.append(f'%y = {node("Concat", [part] * 1000, 13, "axis = -1 : i64")}')
elif sys.argv[1] == 'axes':
    axes = ('%axes', 'tensor<100000xi64>')
    body.append(f'%axes = onnx.constant dense<[{", ".join(str(3 + k) for k in range(100000))}]> : tensor<100000xi64>')
    body.append(f'%a0 = {node("Unsqueeze", [x, axes], 13)}')
    body += [f'%a{k + 1} = {node("Identity", [(f"%a{k}", ANY)], 16)}' for k in range(1000)]
    body.append(f'%y = {node("Squeeze", [("%a1000", ANY), axes], 13)}')
elif sys.argv[1] == 'elements':
    body += ['%last = onnx.constant dense<3> : tensor<1xi64>', f'%huge = onnx.constant dense<[1, 1, 1, {2**63 - 1}]> : tensor<4xi64>', '%flat = onnx.constant dense<-1> : tensor<1xi64>']
    body.append(f'%a = {node("Unsqueeze", [x, ("%last", "tensor<1xi64>")], 13)}')
    body.append(f'%b = {node("Expand", [("%a", ANY), ("%huge", "tensor<4xi64>")], 13)}')
    body.append(f'%y = {node("Reshape", [("%b", ANY), ("%flat", "tensor<1xi64>")], 14)}')
else:
    shape = ('%shape', 'tensor<2xi64>')
    body.append('%shape = onnx.constant dense<4096> : tensor<2xi64>')
    body += [f'%n{k} = {node("ConstantOfShape", [shape], 9)}' for k in range(12)]
    body.append(f'%all = {node("Concat", [(f"%n{k}", ANY) for k in range(12)], 13, "axis = 0 : i64")}')
    body.append(f'%y = {node("MatMul", [x, ("%all", ANY)], 13)}')
lines = '\n'.join(body)
text = f'''module {{
onnx.param @e : tensor<64x4xf32> = dense<0.5> : tensor<64x4xf32>
func.func @main(%ids: tensor<?x?xi64> {{onnx.name = "input_ids"}}, %positions: tensor<?x?xi64> {{onnx.name = "position_ids"}}) -> {ANY} {{
%e = onnx.weight @e : tensor<64x4xf32>
{lines}
return %y : {ANY}
}}
}}'''
limits = lambda: (resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30)), resource.setrlimit(resource.RLIMIT_CPU, (120, 120)))
result = subprocess.run(['lathe-opt', '--onnx-raise', '-o', '/dev/null'], input=text, capture_output=True, text=True, preexec_fn=limits)
print(result.stderr[:2000])
if len(result.stderr) > 4000:
    sys.exit(f'a message of {len(result.stderr)} characters')
if result.returncode:
    sys.exit(f'lathe-opt ends with {result.returncode}')
