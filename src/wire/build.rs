//! Generates the protobuf code of every package below `proto/`.

use std::{
    collections::BTreeMap,
    env,
    error::Error,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

use prost::Message as _;
use prost_types::FileDescriptorSet;

/// Packages that clients may see: they have JSON and are part of the reflection service.
const PUBLIC: [&str; 2] = ["quorate.api.v1", "quorate.common.v1"];

fn main() -> Result<(), Box<dyn Error>> {
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join("../../proto");
    let out = PathBuf::from(env::var("OUT_DIR")?);
    println!("cargo:rerun-if-changed={}", root.display());
    let mut files = Vec::new();
    collect(&root, &mut files)?;
    files.sort();
    let set = protox::compile(&files, [&root])?;

    tonic_prost_build::configure()
        .btree_map(".")
        .bytes(".")
        .compile_well_known_types(true)
        .extern_path(".google.protobuf", "::pbjson_types")
        .build_transport(false)
        .compile_fds(set.clone())?;

    // Without source info: reflection needs no comments.
    let mut bare = set;
    for file in &mut bare.file {
        file.source_code_info = None;
    }
    pbjson_build::Builder::new()
        .register_descriptors(&bare.encode_to_vec())?
        .btree_map(["."])
        .extern_path(".google.protobuf", "::pbjson_types")
        .build(&PUBLIC.map(|package| format!(".{package}")))?;

    let mut packages: Vec<String> = bare.file.iter().map(|f| f.package().to_owned()).collect();
    packages.sort();
    packages.dedup();
    fs::write(out.join("modules.rs"), modules(&packages)?)?;

    fs::write(out.join("methods.rs"), methods(&bare)?)?;
    bare.file.retain(|f| PUBLIC.contains(&f.package()) || f.package().starts_with("google."));
    fs::write(out.join("public.fds"), bare.encode_to_vec())?;
    Ok(())
}

/// All `.proto` files below `folder`, each folder watched for changes.
fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> Result<(), Box<dyn Error>> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            println!("cargo:rerun-if-changed={}", path.display());
            collect(&path, files)?;
        } else if path.extension().is_some_and(|end| end == "proto") {
            println!("cargo:rerun-if-changed={}", path.display());
            files.push(path);
        }
    }
    Ok(())
}

/// The module tree that generated code expects (`quorate::NAME::v1`), and a short name for each package.
fn modules(packages: &[String]) -> Result<String, Box<dyn Error>> {
    let (mut tree, mut names) = (String::new(), String::new());
    for package in packages {
        let Some(name) = package.strip_prefix("quorate.").and_then(|rest| rest.strip_suffix(".v1")) else {
            continue;
        };
        let include = |file: &str| format!("include!(concat!(env!(\"OUT_DIR\"), \"/{package}{file}\"));");
        let serde = if PUBLIC.contains(&package.as_str()) { include(".serde.rs") } else { String::new() };
        writeln!(tree, "pub mod {name} {{ pub mod v1 {{ {} {serde} }} }}", include(".rs"))?;
        writeln!(names, "pub use quorate::{name}::v1 as {name};")?;
    }
    Ok(format!("mod quorate {{\n{tree}}}\n{names}"))
}

/// The table of the public API's calls, by path. Names in Rust are those of the `.proto` files: the lint asks for a
/// message of its own for every request and response, in the package of the service.
fn methods(set: &FileDescriptorSet) -> Result<String, Box<dyn Error>> {
    let mut rows = BTreeMap::new();
    for file in set.file.iter().filter(|f| PUBLIC.contains(&f.package())) {
        let package = file.package();
        let module = package.trim_start_matches("quorate.").trim_end_matches(".v1");
        let message = |full: &str| -> Result<String, Box<dyn Error>> {
            let own = full.strip_prefix(&format!(".{package}."));
            Ok(format!("crate::generated::{module}::{}", own.ok_or("a message of another package")?))
        };
        for (service, method) in file.service.iter().flat_map(|s| s.method.iter().map(move |m| (s, m))) {
            let path = format!("/{package}.{}/{}", service.name(), method.name());
            let (request, response) = (message(method.input_type())?, message(method.output_type())?);
            let streams = format!("({}, {})", method.client_streaming(), method.server_streaming());
            let row = format!("Method::new::<{request}, {response}>({path:?}, {streams}),");
            rows.insert(path, row);
        }
    }
    Ok(format!("&[{}]", rows.into_values().collect::<Vec<_>>().join("\n")))
}
