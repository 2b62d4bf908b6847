"""rename_gguf.py IN.gguf OUT.gguf: a Clover GGUF as one of the base architecture, qwen35moe, all tensors F32.

llama.cpp knows the causal path under either name, but reads `clover_moe` only since build b12060 and refuses files with
diffusion tensors. So: the architecture and the prefix of its keys are renamed, the four diffusion tensors of each layer
and the clover_moe.diffusion.* keys are left out, and every tensor is written as the float32 values it stands for, because
llama.cpp rounds activations to 8 or 16 bits before it multiplies them with weights of any other type.
"""
import sys

from gguf import GGUFReader, GGUFValueType, GGUFWriter, dequantize

BASE = 'qwen35moe'
DIFFUSION = ('conv_right_weight', 'bd_softmax_logit_scale', 'bd_softmax_history_bias', 'bd_softmax_history_c')


def rename(source, target):
    reader = GGUFReader(source)
    architecture = reader.fields['general.architecture'].contents()
    writer = GGUFWriter(target, BASE)
    for key, field in reader.fields.items():
        if key.startswith(('GGUF.', f'{architecture}.diffusion.')) or key == 'general.architecture':
            continue
        if key.startswith(architecture + '.'):
            key = BASE + key[len(architecture):]
        value = field.contents()
        element = field.types[-1] if field.types[0] == GGUFValueType.ARRAY else None
        if value == []:  # the writer takes no empty array; merges can be one, and no text is read here
            value, element = ['a b'], GGUFValueType.STRING
        writer.add_key_value(key, value, field.types[0], element)
    for tensor in reader.tensors:
        if not tensor.name.removesuffix('.weight').endswith(DIFFUSION):
            shape = [int(extent) for extent in reversed(tensor.shape)]  # GGUF counts the fastest axis first
            writer.add_tensor(tensor.name, dequantize(tensor.data, tensor.tensor_type).reshape(shape))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == '__main__':
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    rename(sys.argv[1], sys.argv[2])
