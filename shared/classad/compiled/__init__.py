"""Compiled scalar code: `plan` resolves names, `source` writes Python, `gear` chooses and falls back."""

from __future__ import annotations

from shared.classad.compiled.runtime import Compiled, Matcher, compile_expr, compile_match

__all__ = ["Compiled", "Matcher", "compile_expr", "compile_match"]
