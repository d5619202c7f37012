//! Locking without a panic path.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks `mutex`, also after a holder panicked.
///
/// Poisoning says that a panic may have left the value half changed. Use this only where every critical section
/// leaves the value whole at each step (plain inserts, removals, replacements); the panic itself is reported by the
/// task group that ran it.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
