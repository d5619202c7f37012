//! Which tasks should exist in which desired state: one pure reconciler per concern.
