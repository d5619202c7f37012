//! Which node: pure placement with an explanation.
