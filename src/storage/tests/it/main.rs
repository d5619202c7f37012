//! Storage tests: the same rules on both backends, faults on the memory disk,
//! kills and damage on sled.

#[cfg(test)]
mod directory;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod images;
#[cfg(test)]
mod kill;
#[cfg(test)]
mod log;
#[cfg(test)]
mod place;
