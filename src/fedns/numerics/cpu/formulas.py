"""Formulas of losses and sketches as kernels get them: the address of compiled code, and that of its parameters.

A kernel is compiled once, whatever the formulas: compiling one again for every loss would take half a minute. What is
compiled for each class of formulas is short: a loop over a run of rows that calls them. It is found by a type that holds the
name of the class and a digest of its source, so that kernels on disk never outlive the formulas they were made of, and
can be read where the class is no longer known.
"""

import hashlib
import inspect
import sys
from dataclasses import fields, is_dataclass
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.typing.templates import AttributeTemplate
from numba.extending import infer_getattr, intrinsic, lower_getattr_generic, models, register_model
from numpy.typing import NDArray

from fedns.numerics.formulas import Formulas


class FormulasType(types.Type):
    """A class of formulas; its value is the address of the parameters, one double each."""

    def __init__(self, module: str, qualname: str, digest: str, parameters: tuple[str, ...]) -> None:
        self.module, self.qualname, self.parameters = module, qualname, parameters
        super().__init__(f"fedns.Formulas({module}.{qualname}, {digest})")

    def method(self, name: str) -> Any:
        """A formula of the class, as the function that was written."""
        return getattr(attrgetter(self.qualname)(sys.modules[self.module]), name)


@register_model(FormulasType)
class _FormulasModel(models.PrimitiveModel):
    def __init__(self, manager: Any, numba_type: Any) -> None:
        super().__init__(manager, numba_type, ir.IntType(64))


@infer_getattr
class _Parameters(AttributeTemplate):
    key = FormulasType

    def generic_resolve(self, formulas, name):
        return types.float64 if name in formulas.parameters else None


@lower_getattr_generic(FormulasType)
def _parameter(context, builder, formulas, address, name):
    values = builder.inttoptr(address, ir.DoubleType().as_pointer())
    return builder.load(cgutils.gep(builder, values, formulas.parameters.index(name)))


def type_of(formulas: Formulas) -> FormulasType:
    """What compiled code knows a value of this class by."""
    kind: Any = type(formulas)
    return _type_of(kind)


@cache
def _type_of(kind: Any) -> FormulasType:
    names = tuple(field.name for field in fields(kind)) if is_dataclass(kind) else ()
    return FormulasType(kind.__module__, kind.__qualname__, _digest(kind), names)


def _digest(kind: type) -> str:
    """A digest of the file that the class is written in: whatever changes there, its kernels are compiled anew."""
    try:
        source = Path(inspect.getfile(kind)).read_bytes()
    except (OSError, TypeError):  # typed into an interpreter
        methods = [m for c in kind.__mro__ for m in vars(c).values() if inspect.isfunction(m)]
        source = repr([(m.__code__.co_code, m.__code__.co_consts, m.__code__.co_names) for m in methods]).encode()
    return hashlib.blake2b(source, digest_size=8).hexdigest()


@cache
def _parameters_of(formulas: Any) -> NDArray[np.float64]:
    """The parameters, at an address that stays."""
    return np.array([getattr(formulas, name) for name in type_of(formulas).parameters], dtype=np.float64)


def address_of_parameters(formulas: Formulas) -> int:
    return int(_parameters_of(formulas).ctypes.data)


@cache
def address_of(function: Any, *argument_types: Any) -> int:
    """Where the code of a compiled function for these types is, from disk if it is there."""
    function.compile(argument_types)
    compiled = function.overloads[argument_types]
    return int(compiled.library.get_pointer_to_function(compiled.fndesc.llvm_func_name))


@intrinsic
def call(typing_context, address, arguments):
    """Call the compiled function at this address with a tuple of arguments; it returns nothing."""

    def generate(context, builder, signature, values):
        kinds = [types.unliteral(kind) for kind in signature.args[1]]
        call_at(context, builder, values[0], kinds, cgutils.unpack_tuple(builder, values[1]))
        return context.get_dummy_value()

    return types.void(types.int64, arguments), generate


def call_at(context: Any, builder: Any, address: Any, kinds: list[Any], values: list[Any]) -> None:
    """The same for other intrinsics: the arguments by their types and values."""
    function_type = context.call_conv.get_function_type(types.none, kinds)
    function = builder.inttoptr(address, function_type.as_pointer())
    status, _ = context.call_conv.call_function(builder, function, types.none, kinds, values)
    with cgutils.if_unlikely(builder, status.is_error):
        context.call_conv.return_status_propagate(builder, status)
