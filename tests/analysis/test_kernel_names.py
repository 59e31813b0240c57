import random

import pytest

from analysis.kernel_names import MAX_LENGTH, UNNAMED, shorten, shorten_all
from analysis.trace import read_trace
from tests.analysis.trace_file import EXAMPLES

NVCC_LAMBDA = (
    "void at::native::vectorized_elementwise_kernel<(int)4, at::native::GeluCUDAKernelImpl("
    "at::TensorIteratorBase &, at::native::GeluType)::[lambda() (instance 2)]::operator ()() const::"
    "[lambda() (instance 2)]::operator ()() const::[lambda(float) (instance 1)], "
    "std::array<char *, (unsigned long)2>>(int, T2, T3)"
)
GCC_LAMBDA = (
    "void at::native::vectorized_elementwise_kernel<4, "
    "at::native::GeluCUDAKernelImpl(at::TensorIteratorBase&, "
    "at::native::GeluType)::{lambda()#2}::operator()() const::{lambda()#4}::operator()() "
    "const::{lambda(c10::BFloat16)#1}, std::array<char*, 2ul> >(int, at::native::X, std::array<char*, "
    "2ul>)"
)
WRAPPED = (
    "void at::native::elementwise_kernel<(int)128, (int)2, void "
    "at::native::gpu_kernel_impl_nocast<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase "
    "&)::[lambda() (instance 3)]::operator ()() const::[lambda() (instance 7)]::operator ()() "
    "const::[lambda(float) (instance 1)]>(at::TensorIteratorBase &, const T1 &)::[lambda(int) (instance "
    "1)]>(int, T3)"
)
XMMA = (
    "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize32x32x8_stage3_warpsize1x2x1_ffma_aligna4_alignc4_"
    "execute_kernel__5x_cublas"
)
FLASH = (
    "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<(int)64, (int)128, "
    "(int)128, (int)4, (bool)0, (bool)0, cutlass::bfloat16_t, pytorch_flash::Flash_kernel_traits<(int)64, "
    "(int)128>>, (bool)0, (bool)1>(pytorch_flash::Flash_fwd_params)"
)
GEMV = (
    "void internal::gemvx::kernel<int, int, __nv_bfloat16, __nv_bfloat16, float, (bool)0, (bool)1, (int)7, "
    "cublasGemvParamsEx<int, cublasGemvTensorStridedBatched<const float>>>(T13)"
)


@pytest.mark.parametrize(
    ("full", "short"),
    [
        (NVCC_LAMBDA, "vectorized_elementwise_kernel<GeluCUDAKernelImpl<float>>"),
        (GCC_LAMBDA, "vectorized_elementwise_kernel<GeluCUDAKernelImpl<BFloat16>>"),
        (WRAPPED, "elementwise_kernel<direct_copy_kernel_cuda<float>>"),
        (XMMA, "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize32x32x8_ffma"),
        (FLASH, "flash_fwd_kernel<64, 128, 128, 4, bfloat16_t>"),
        (GEMV, "gemvx::kernel<int, __nv_bfloat16, float, 7>"),
        (
            "void cutlass::Kernel2<cutlass_80_simt_sgemm_64x64_8x5_nn_align1>(T1::Params)",
            "cutlass_80_simt_sgemm_64x64_8x5_nn_align1",
        ),
        (
            "fmha_cutlassF_f32_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel<float>::Params)",
            "fmha_cutlassF_f32_aligned_64x64_rf_sm80",
        ),
        (
            "void at::native::<unnamed>::vectorized_layer_norm_kernel<float, float, (bool)0>(int, T2)",
            "vectorized_layer_norm_kernel<float>",
        ),
        (
            "void (anonymous namespace)::softmax_warp_forward<float, float, float, 6, false, false>(int)",
            "softmax_warp_forward<float, 6>",
        ),
        (
            "void at::native::reduce_kernel<(int)512, (int)1, at::native::ReduceOp<float, "
            "at::native::MeanOps<float, "
            "float, float, float>, unsigned int, float, (int)4, (int)4>>(T3)",
            "reduce_kernel<MeanOps<float>>",
        ),
        (
            "void at::native::vectorized_elementwise_kernel<(int)4, at::native::AUnaryFunctor<float, "
            "float, float, "
            "at::native::binary_internal::MulFunctor<float>>, std::array<char *, 2>>(int)",
            "vectorized_elementwise_kernel<AUnary MulFunctor<float>>",
        ),
        (
            "void at::native::vectorized_elementwise_kernel<(int)4, at::native::BinaryFunctor<float, "
            "float, float, "
            "at::native::binary_internal::MulFunctor<float>>, std::array<char *, 3>>(int)",
            "vectorized_elementwise_kernel<MulFunctor<float>>",
        ),
        ("nvjet_hsh_64x8_64x16_4x1_v_bz_TNT", "nvjet_hsh_64x8_64x16_4x1_v_bz_TNT"),
        ("triton_poi_fused_add_mul_0", "triton_poi_fused_add_mul_0"),
        ("my_kernel", "my_kernel"),
        ("my_kernel <int>(int)", "my_kernel<int>"),
        ("", UNNAMED),
        (" \n\t", UNNAMED),
        ("line\nbreak<int>(int)", "break<int>"),
        ("f<int", "f<int>"),
        ("f<g<h(", "f<g<h>>"),
    ],
)
def test_known_names(full: str, short: str) -> None:
    assert shorten(full) == short


def test_end_of_a_long_name_stays() -> None:
    stem = "triton_red_fused__to_copy_add_native_layer_norm_native_layer_norm_backward_view_"
    one, other = shorten(f"{stem}12"), shorten(f"{stem}13")
    assert one != other
    assert one.endswith("_view_12")
    assert len(one) == len(other) == MAX_LENGTH


def test_names_of_the_example_traces() -> None:
    names = {name for path in EXAMPLES.values() for name in read_trace(path).kernels["name"].cat.categories}
    short = shorten_all(names)
    assert len(names) == 33
    assert len(set(short.values())) == 33
    for text in short.values():
        assert len(text) <= MAX_LENGTH
        assert not any(noise in text for noise in ("void ", "at::native", "unnamed", "lambda", "std::", "#"))


def test_alike_names_are_numbered_in_the_order_of_their_full_names() -> None:
    names = ["b::f<bool>(int)", "void c::f<bool>(T1)", "a::f<bool>()", "g()"]
    expected = {"a::f<bool>()": "f", "b::f<bool>(int)": "f #2", "void c::f<bool>(T1)": "f #3", "g()": "g"}
    assert shorten_all(names) == expected
    assert shorten_all(reversed(names)) == expected
    assert shorten_all([*names, *names]) == expected
    assert shorten_all([]) == {}


def test_number_that_is_taken_already_is_passed_over() -> None:
    short = shorten_all(["x::a<true>", "x::a<false>", "a<bool>"])
    assert sorted(short.values()) == ["a", "a #2", "a #3"]


@pytest.mark.parametrize(
    "alphabet", ["<>()[]{}", "<>(), abT1*&:\n\x00\x1b'\"`|", "void lambda<>()::[{", "é漢😀<>"]
)
def test_any_string_gives_a_short_line(alphabet: str) -> None:
    dice = random.Random(alphabet)
    for _ in range(2000):
        text = "".join(dice.choice(alphabet) for _ in range(dice.randint(0, 90)))
        short = shorten(text)
        assert 0 < len(short) <= MAX_LENGTH
        assert short.isprintable()
        assert shorten(text) == short


def test_deep_nesting_ends() -> None:
    assert len(shorten("f<" * 3000 + ">" * 3000)) <= MAX_LENGTH
    assert len(shorten("f<" + "(" * 5000)) <= MAX_LENGTH
    assert len(shorten("a" * 100_000)) == MAX_LENGTH
