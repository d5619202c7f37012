//! Encoded forms, and the files of golden bytes.

use std::{fmt::Write as _, fs, path::PathBuf};

use quorate_state::{Record, State};
use quorate_wire::store::{encode_record, write_record};

/// One record.
pub(crate) fn encoded(record: &Record) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_record(record, &mut bytes);
    bytes
}

/// The whole image of a state.
pub(crate) fn image(state: &State) -> Vec<u8> {
    let mut bytes = Vec::new();
    for record in state.records() {
        write_record(&record, &mut bytes).unwrap();
    }
    bytes
}

/// A log entry of one envelope with these encoded fields.
pub(crate) fn entry(fields: &[u8]) -> Vec<u8> {
    let length = u8::try_from(fields.len()).unwrap();
    [&[0x0a, length], fields].concat()
}

/// The golden bytes of that name; replaced by `bytes` first when the environment asks for it.
pub(crate) fn golden(name: &str, about: &str, bytes: &[u8]) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(format!("{name}.hex"));
    if std::env::var_os("QUORATE_GOLDEN").is_some_and(|value| value == "write") {
        fs::write(&path, format!("# {about}\n{}", hex(bytes))).unwrap();
    }
    let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let digits: String =
        text.lines().filter(|line| !line.starts_with('#')).flat_map(str::split_whitespace).collect();
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect()
}

/// Lines of 32 bytes in groups of four.
fn hex(bytes: &[u8]) -> String {
    let mut text = String::new();
    for (i, byte) in bytes.iter().enumerate() {
        let before = match i {
            0 => "",
            _ if i % 32 == 0 => "\n",
            _ if i % 4 == 0 => " ",
            _ => "",
        };
        write!(text, "{before}{byte:02x}").unwrap();
    }
    text + "\n"
}
