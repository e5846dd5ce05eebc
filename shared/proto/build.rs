//! Compiles every contract below `proto/` without a system `protoc`, and keeps the descriptors for gRPC reflection.

use std::path::{Path, PathBuf};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let root = Path::new("../../proto").canonicalize()?;
    println!("cargo:rerun-if-changed={}", root.display());
    let mut files = Vec::new();
    collect(&root.join("likewise"), &mut files)?;
    files.sort();

    let mut compiler = protox::Compiler::new([&root])?;
    compiler.include_imports(true).open_files(&files)?;
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    // Encoded by the compiler itself, which keeps the validation rules; the typed form drops options it does not know.
    std::fs::write(out.join("descriptors.bin"), compiler.encode_file_descriptor_set())?;

    // The annotations need no code of their own; that of the error model is in a crate.
    let mut descriptors = compiler.file_descriptor_set();
    descriptors.file.retain(|file| file.package() != "buf.validate");
    tonic_prost_build::configure()
        .bytes(".likewise")
        .extern_path(".google.rpc", "::tonic_types::pb")
        .include_file("likewise.rs")
        .compile_fds(descriptors)?;
    Ok(())
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|end| end == "proto") {
            files.push(path);
        }
    }
    Ok(())
}
