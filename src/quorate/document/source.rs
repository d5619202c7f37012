//! Where a document comes from: a file, a folder of files, or standard input.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use super::{Problem, Problems};

/// Most bytes of one file.
pub(crate) const MAX_BYTES: u64 = 1 << 20;

/// How a file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// YAML 1.2; may hold several documents.
    Yaml,
    /// TOML 1.1.
    Toml,
    /// JSON.
    Json,
}

impl Format {
    /// By the end of the name.
    fn of(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()? {
            "yaml" | "yml" => Some(Self::Yaml),
            "toml" => Some(Self::Toml),
            "json" => Some(Self::Json),
            _ => None,
        }
    }
}

/// A text and what it is.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    /// As the user gave it; `<stdin>` for standard input.
    pub(crate) name: String,
    /// The text.
    pub(crate) text: String,
    /// How it is written.
    pub(crate) format: Format,
}

impl Source {
    /// Reads a file, all job files of a folder (by name, not below it), or standard input (`-`, YAML unless told).
    ///
    /// # Errors
    /// A file that cannot be read, is too large, is not UTF-8, or whose format nothing tells.
    pub(crate) fn read_all(path: &str, format: Option<Format>) -> Result<Vec<Self>, Problems> {
        if path == "-" {
            let text = read(path, "<stdin>", io::stdin().lock())?;
            return Ok(vec![Self { name: "<stdin>".into(), text, format: format.unwrap_or(Format::Yaml) }]);
        }
        if !Path::new(path).is_dir() {
            return Ok(vec![Self::read(path, format)?]);
        }
        let failed = |error: io::Error| Problem::of_file(path, format!("cannot be listed: {error}"));
        let mut files = Vec::new();
        for entry in std::fs::read_dir(path).map_err(failed)? {
            let file = entry.map_err(failed)?.path();
            if file.is_file() && Format::of(&file).is_some() {
                files.push(file.to_string_lossy().into_owned());
            }
        }
        if files.is_empty() {
            let message = "holds no file that ends in .yaml, .yml, .toml or .json";
            return Err(Problem::of_file(path, message).into());
        }
        files.sort();
        files.iter().map(|file| Self::read(file, format)).collect()
    }

    /// Reads one file.
    ///
    /// # Errors
    /// As [`Source::read_all`].
    pub(crate) fn read(path: &str, format: Option<Format>) -> Result<Self, Problems> {
        let Some(format) = format.or_else(|| Format::of(Path::new(path))) else {
            let message =
                "its name does not tell its format: let it end in .yaml, .toml or .json, or give --format";
            return Err(Problem::of_file(path, message).into());
        };
        let file = File::open(path).map_err(|error| {
            let why = match error.kind() {
                io::ErrorKind::NotFound => "there is no such file".to_owned(),
                io::ErrorKind::PermissionDenied => "this user may not read it".to_owned(),
                _ => format!("cannot be opened: {error}"),
            };
            Problem::of_file(path, why)
        })?;
        Ok(Self { name: path.to_owned(), text: read(path, path, file)?, format })
    }
}

fn read(path: &str, name: &str, from: impl Read) -> Result<String, Problem> {
    let mut bytes = Vec::new();
    from.take(MAX_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| Problem::of_file(path, format!("cannot be read: {error}")))?;
    decode(name, bytes)
}

fn decode(name: &str, bytes: Vec<u8>) -> Result<String, Problem> {
    if bytes.len() as u64 > MAX_BYTES {
        let message = "is larger than 1 MiB: split it, or move data out of it (into the image, a volume)";
        return Err(Problem::of_file(name, message));
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let bytes = error.as_bytes();
        let line = bytes[..at].iter().filter(|byte| **byte == b'\n').count() + 1;
        let byte = bytes.get(at).copied().unwrap_or_default();
        let message = format!("is not UTF-8: byte {at} (line {line}) is 0x{byte:02x}; save it as UTF-8");
        Problem::of_file(name, message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(result: Result<String, Problem>) -> String {
        result.unwrap_err().to_string()
    }

    #[test]
    fn what_is_no_text_of_bounded_size_is_refused() {
        assert_eq!(decode("f", vec![b'x'; 1 << 20]).unwrap().len(), 1 << 20);
        assert_eq!(
            message(decode("f", vec![b'x'; (1 << 20) + 1])),
            "f: is larger than 1 MiB: split it, or move data out of it (into the image, a volume)"
        );
        assert_eq!(
            message(decode("f", b"a: 1\nb: \xff\n".to_vec())),
            "f: is not UTF-8: byte 8 (line 2) is 0xff; save it as UTF-8"
        );
    }

    #[test]
    fn files_folders_and_formats_are_told_apart() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
        let missing = Source::read_all(&path("no.yaml"), None).unwrap_err().to_string();
        assert!(missing.ends_with("no.yaml: there is no such file"), "{missing}");
        let empty = Source::read_all(&path("."), None).unwrap_err().to_string();
        assert!(empty.ends_with("holds no file that ends in .yaml, .yml, .toml or .json"), "{empty}");
        for name in ["b.toml", "a.yml", "c.txt"] {
            std::fs::write(path(name), "x").unwrap();
        }
        let all = Source::read_all(&path("."), None).unwrap();
        let formats: Vec<Format> = all.iter().map(|source| source.format).collect();
        assert_eq!(formats, [Format::Yaml, Format::Toml]);
        let unknown = Source::read_all(&path("c.txt"), None).unwrap_err().to_string();
        assert!(unknown.contains("give --format"), "{unknown}");
        assert_eq!(Source::read_all(&path("c.txt"), Some(Format::Json)).unwrap()[0].format, Format::Json);
    }
}
