"""Edits a parsed network so that its attention computes logits and softmax in FP32.

That is slower, because TensorRT no longer fuses the block, and it is right on versions of TensorRT
that compute fused attention wrongly (10.3 is known for DINOv3). The bundle carries one graph; the
edit happens in TensorRT's own network, so that a device needs no package for it.
"""

from __future__ import annotations

from typing import Any

from anoco_edge.errors import AnocoError


class NoHalfAttentionError(AnocoError):
    """A network without attention in half precision, which has no logits to widen."""


def widen_logits(trt: Any, network: Any) -> int:
    """Compute the product before every softmax, and the softmax, in FP32; returns how many.

    It raises `NoHalfAttentionError` where there is nothing to change.
    """
    layers = [network.get_layer(number) for number in range(network.num_layers)]
    made_by = {
        layer.get_output(k).name: layer for layer in layers for k in range(layer.num_outputs)
    }
    edit = _Edit(trt, network, layers, made_by)
    widened = sum(edit.widen(layer) for layer in layers if layer.type == trt.LayerType.SOFTMAX)
    if not widened:
        raise NoHalfAttentionError(
            "the graph has no attention in half precision", hint="build it as it is"
        )
    return widened


class _Edit:
    def __init__(self, trt: Any, network: Any, layers: list[Any], made_by: dict[str, Any]) -> None:
        self._trt, self._network = trt, network
        self._layers, self._made_by = layers, made_by
        self._half = (trt.DataType.HALF, trt.DataType.BF16)
        kinds = trt.LayerType
        # What may lie between the product and the softmax and has one input that counts.
        self._passes = (kinds.CAST, kinds.SHUFFLE, kinds.IDENTITY, kinds.ELEMENTWISE)

    def widen(self, softmax: Any) -> bool:
        """Widen one attention block; False if this softmax belongs to none in half precision."""
        between: list[Any] = []
        product = self._product_before(softmax, between)
        if product is None or product.get_input(0).dtype not in self._half:
            return False
        before = softmax.get_output(0).dtype
        for layer in (product, *between):
            if layer.type in (self._trt.LayerType.MATRIX_MULTIPLY, self._trt.LayerType.ELEMENTWISE):
                self._widen_inputs(layer)
        if softmax.get_input(0).dtype in self._half:  # a Cast of the graph lies before it
            self._replace_input(softmax, 0, self._cast(softmax.get_input(0), self._float))
        if softmax.get_output(0).dtype != before:
            self._narrow_output(softmax, before)
        return True

    @property
    def _float(self) -> Any:
        return self._trt.DataType.FLOAT

    def _product_before(self, layer: Any, between: list[Any]) -> Any:
        """Find the product of two computed tensors that the logits of a softmax come from.

        The layers on the way are put into `between`.
        """
        for number in range(layer.num_inputs):
            tensor = layer.get_input(number)
            above = None if tensor is None else self._made_by.get(tensor.name)
            if above is None:
                continue
            if above.type == self._trt.LayerType.MATRIX_MULTIPLY:
                return above
            if above.type in self._passes:
                found = self._product_before(above, between)
                if found is not None:
                    between.append(above)
                    return found
        return None

    def _widen_inputs(self, layer: Any) -> None:
        for number in range(layer.num_inputs):
            tensor = layer.get_input(number)
            if tensor is not None and tensor.dtype in self._half:
                self._replace_input(layer, number, self._cast(tensor, self._float))

    def _narrow_output(self, softmax: Any, dtype: Any) -> None:
        """Let what follows a softmax have the numbers that it had before."""
        output = softmax.get_output(0)
        readers = [
            (layer, number)
            for layer in self._layers
            for number in range(layer.num_inputs)
            if layer.get_input(number) is not None and layer.get_input(number).name == output.name
        ]
        narrow = self._cast(output, dtype)
        for layer, number in readers:
            self._replace_input(layer, number, narrow)

    def _cast(self, tensor: Any, dtype: Any) -> Any:
        return self._network.add_cast(tensor, dtype).get_output(0)

    @staticmethod
    def _replace_input(layer: Any, number: int, tensor: Any) -> None:
        layer.set_input(number, tensor)
