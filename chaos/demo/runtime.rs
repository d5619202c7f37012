//! Which runtime the demo takes, and why.

use anyhow::{Result, bail};

use crate::truth;
use crate::workload::{IMAGE, On};

/// What the user asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Choice {
    /// Docker where an engine answers and has the test image, else processes.
    #[default]
    Auto,
    /// Containers.
    Docker,
    /// Processes.
    Process,
    /// Nothing real: for load alone.
    Fake,
}

/// The runtime and the reason for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// What jobs run on.
    pub on: On,
    /// Why, in words.
    pub why: String,
}

/// Settles the choice.
///
/// # Errors
/// When Docker was asked for and cannot be had.
pub async fn choose(choice: Choice) -> Result<Chosen> {
    let asked = |on| Ok(Chosen { on, why: "as asked".to_owned() });
    match choice {
        Choice::Process => return asked(On::Process),
        Choice::Fake => return asked(On::Fake),
        Choice::Auto | Choice::Docker => {}
    }
    let missing = match truth::engine_version().await {
        Err(error) => format!("no Docker engine answers ({error:#})"),
        Ok(version) if truth::has_image(IMAGE).await => {
            return Ok(Chosen { on: On::Docker, why: format!("Docker engine {version} answers") });
        }
        Ok(_) => format!("the engine lacks the image {IMAGE}; chaos/images.sh builds it"),
    };
    if choice == Choice::Docker {
        bail!("{missing}");
    }
    Ok(Chosen { on: On::Process, why: missing })
}
