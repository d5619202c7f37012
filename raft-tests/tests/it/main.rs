//! In-process clusters under faults.

#[cfg(test)]
mod cluster;
#[cfg(test)]
mod election;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod join;
#[cfg(test)]
mod read;
#[cfg(test)]
mod replication;
