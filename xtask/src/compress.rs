//! Writes `.br` and `.gz` copies beside each file of the page, so that the server never compresses.

use crate::{
    failure::{Failure, IoContext, Result},
    files, parallel,
    shell::note,
};
use std::{
    ffi::OsStr,
    fs,
    io::Write,
    path::{Path, PathBuf},
    sync::atomic::{AtomicUsize, Ordering},
};

/// Extensions of compressible files; pictures and fonts are already compressed.
const COMPRESSIBLE: &[&str] = &["html", "js", "mjs", "css", "wasm", "svg", "json", "txt", "xml", "ico", "webmanifest"];

/// Compression level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effort {
    /// Brotli 11, gzip 9: for releases.
    Most,
    /// Brotli 3, gzip 1: for development.
    Little,
}

/// Compresses every compressible file of a directory.
pub fn folder(folder: &Path, effort: Effort) -> Result<()> {
    let files: Vec<_> = files::files_below(folder)?.into_iter().filter(|file| is_compressible(file)).collect();
    if files.is_empty() {
        return Err(Failure::new(format!("{} holds no page", folder.display())).hint("run `cargo xtask page`"));
    }
    let (plain_bytes, brotli_bytes) = (AtomicUsize::new(0), AtomicUsize::new(0));
    parallel::for_each(&files, |file| {
        let plain = fs::read(file).doing(|| format!("read {}", file.display()))?;
        let packed = brotli(&plain, effort)?;
        plain_bytes.fetch_add(plain.len(), Ordering::Relaxed);
        brotli_bytes.fetch_add(packed.len(), Ordering::Relaxed);
        write(&beside(file, "br"), &packed)?;
        write(&beside(file, "gz"), &gzip(&plain, effort)?)
    })?;
    let (plain_bytes, brotli_bytes) = (plain_bytes.into_inner(), brotli_bytes.into_inner());
    note(&format!("{} files: {plain_bytes} bytes, {brotli_bytes} as brotli", files.len()));
    Ok(())
}

/// Appends an extension: `page.js` and `br` become `page.js.br`.
pub fn beside(file: &Path, ending: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".");
    name.push(ending);
    PathBuf::from(name)
}

/// Returns whether a file gets compressed copies.
pub fn is_compressible(file: &Path) -> bool {
    file.extension().and_then(OsStr::to_str).is_some_and(|ending| COMPRESSIBLE.contains(&ending))
}

/// Compresses bytes with brotli.
pub fn brotli(plain: &[u8], effort: Effort) -> Result<Vec<u8>> {
    let quality = if effort == Effort::Most { 11 } else { 3 };
    // 2^22 bytes is the largest window that every browser accepts.
    let parameters = brotli::enc::BrotliEncoderParams { quality, lgwin: 22, ..Default::default() };
    let mut packed = Vec::new();
    brotli::BrotliCompress(&mut &plain[..], &mut packed, &parameters).doing(|| "compress with brotli".into())?;
    Ok(packed)
}

fn gzip(plain: &[u8], effort: Effort) -> Result<Vec<u8>> {
    let level = if effort == Effort::Most { flate2::Compression::best() } else { flate2::Compression::fast() };
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), level);
    encoder.write_all(plain).and_then(|()| encoder.finish()).doing(|| "compress with gzip".into())
}

fn write(file: &Path, bytes: &[u8]) -> Result<()> {
    fs::write(file, bytes).doing(|| format!("write {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn compression_round_trips() {
        let plain: Vec<u8> = (0..20_000_u32).flat_map(|i| (i / 7).to_le_bytes()).collect();
        for effort in [Effort::Most, Effort::Little] {
            let packed = brotli(&plain, effort).expect("brotli");
            assert!(packed.len() < plain.len());
            let mut back = Vec::new();
            brotli::BrotliDecompress(&mut &packed[..], &mut back).expect("brotli reads what it wrote");
            assert_eq!(back, plain);

            let packed = gzip(&plain, effort).expect("gzip");
            back.clear();
            flate2::read::GzDecoder::new(&packed[..]).read_to_end(&mut back).expect("gzip reads what it wrote");
            assert_eq!(back, plain);
        }
    }

    #[test]
    fn only_text_and_wasm_are_compressed() {
        for (name, compressible) in [("a.js", true), ("a_bg.wasm", true), ("a.js.br", false), ("font.woff2", false)] {
            assert_eq!(is_compressible(Path::new(name)), compressible, "{name}");
        }
    }

    #[test]
    fn a_folder_without_a_page_is_an_error() {
        folder(Path::new("no/such/folder"), Effort::Little).expect_err("there is nothing to send");
    }
}
