//! Every reason of the catalogue can come up, and some test sees it come up: read from the sources of the product.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use quorate_wire::Reason;

/// Reasons that the product itself does not give yet: what a proxy's status is read as.
const FOREIGN: [Reason; 1] = [Reason::PermissionDenied];

/// What the files below `folder` say: the product's own text, and that of the tests.
fn read(folder: &Path, product: &mut String, tests: &mut String) -> io::Result<()> {
    let mut entries: Vec<PathBuf> =
        fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<_>>()?;
    entries.sort();
    for path in entries {
        if path.is_dir() {
            read(&path, product, tests)?;
            continue;
        }
        if path.extension().is_none_or(|end| end != "rs") || path.ends_with("wire/tests/catalogue.rs") {
            continue;
        }
        let text = fs::read_to_string(&path)?;
        let of_tests =
            path.components().any(|part| matches!(part.as_os_str().to_str(), Some("tests" | "test")))
                || path.ends_with("tests.rs");
        let (own, test) = match text.split_once("#[cfg(test)]\nmod tests {") {
            _ if of_tests => ("", text.as_str()),
            Some((own, test)) => (own, test),
            None => (text.as_str(), ""),
        };
        // The catalogue names every reason; only where it turns refusals into errors does it give one.
        let own = match own.split_once("impl From<Rejection> for ApiError") {
            Some((_, giving)) => giving,
            None => own,
        };
        product.push_str(own);
        tests.push_str(test);
    }
    Ok(())
}

fn names(text: &str, reason: Reason) -> bool {
    let (variant, word) = (format!("Reason::{reason:?}"), format!("\"{reason}\""));
    let ends = |at: usize| !text[at + variant.len()..].starts_with(|c: char| c.is_alphanumeric());
    text.match_indices(&variant).any(|(at, _)| ends(at)) || text.contains(&word)
}

#[test]
fn every_reason_is_given_somewhere_and_seen_by_a_test() {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let (mut product, mut tests) = (String::new(), String::new());
    read(&sources, &mut product, &mut tests).unwrap();
    for reason in Reason::ALL.iter().copied().filter(|reason| !FOREIGN.contains(reason)) {
        assert!(names(&product, reason), "{reason} is in the catalogue, but nothing gives it");
        assert!(names(&tests, reason), "{reason} is given, but no test sees it");
    }
}
