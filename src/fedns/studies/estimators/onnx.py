"""A fitted estimator as an ONNX graph: one product, one sum, and what makes a prediction of a margin."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedns.core.errors import ConfigError
from fedns.core.types import FloatArray

_OPSET = 13
_IR_VERSION = 8  # read by runtimes of the last years, too


def onnx_of(coefficients: FloatArray, intercepts: FloatArray, output: str) -> Any:
    """A model whose input is `X` (rows, columns) and whose output is `prediction`, all in double precision.

    output: "identity" and "exp" for one number a row; "sigmoid" for the probabilities of two classes, "softmax" of several.

    - coefficients: (outputs, columns).
    - intercepts: (outputs,).
    """
    try:
        from onnx import TensorProto, checker, helper, numpy_helper
    except ImportError:
        raise ConfigError("to_onnx needs onnx: pip install 'fedns[onnx]'") from None
    constants = [
        numpy_helper.from_array(np.ascontiguousarray(coefficients.T, dtype=np.float64), "coefficients"),
        numpy_helper.from_array(np.asarray(intercepts, dtype=np.float64), "intercepts"),
    ]
    nodes = [
        helper.make_node("MatMul", ["X", "coefficients"], ["products"]),
        helper.make_node("Add", ["products", "intercepts"], ["margins"]),
    ]
    if output == "sigmoid":  # both classes, as softmax of 0 and the margin
        constants.append(numpy_helper.from_array(np.array([[0.0, 1.0]]), "both"))
        nodes.append(helper.make_node("MatMul", ["margins", "both"], ["two_margins"]))
        nodes.append(helper.make_node("Softmax", ["two_margins"], ["prediction"], axis=1))
    elif output == "softmax":
        nodes.append(helper.make_node("Softmax", ["margins"], ["prediction"], axis=1))
    else:
        nodes.append(helper.make_node({"exp": "Exp", "identity": "Identity"}[output], ["margins"], ["prediction"]))
    outputs = 2 if output == "sigmoid" else len(coefficients)
    shapes = [("X", coefficients.shape[1]), ("prediction", outputs)]
    ends = [helper.make_tensor_value_info(name, TensorProto.DOUBLE, ["rows", size]) for name, size in shapes]
    graph = helper.make_graph(nodes, "fedns", ends[:1], ends[1:], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=_IR_VERSION)
    checker.check_model(model)
    return model
