//! Takes out of a page's program what nothing in the page can call, and writes the rest so that it compresses well.
//!
//! The framework brings a client for server functions along, with classes that JavaScript could make streams of. The page
//! makes none; they, their exports and what only those reach are a twentieth of the program.

use crate::{
    failure::{Doing, Failure, Result},
    files,
    shell::Shell,
};
use serde_json::json;
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Classes that only a page with server functions would use.
const NEVER_MADE: [&str; 3] = ["IntoUnderlyingByteSource", "IntoUnderlyingSink", "IntoUnderlyingSource"];

/// What compresses well is not what is short: functions that are inlined repeat themselves, and data that is packed leaves
/// out its zeros one by one. Found by trying each pass of binaryen 132 with and without.
const WASM_OPT: [&str; 13] = [
    "-O2",
    "--flexible-inline-max-function-size=4",
    "--one-caller-inline-max-function-size=0",
    "--always-inline-max-function-size=0",
    "--skip-pass=memory-packing",
    "--skip-pass=remove-unused-brs",
    "--skip-pass=simplify-locals-nostructure",
    "--skip-pass=simplify-locals",
    "--skip-pass=merge-blocks",
    "--skip-pass=remove-unused-module-elements",
    "--reorder-functions-by-name",
    "--strip-debug",
    "--strip-producers",
];

/// Makes the one program in a folder smaller.
pub fn program_in(shell: &Shell, folder: &Path) -> Result<()> {
    let all = files::files_below(folder)?;
    let one = |ending: &str| all.iter().find(|file| file.to_string_lossy().ends_with(ending)).cloned();
    let (Some(wasm), Some(script)) = (one("_bg.wasm"), script_of(&all)) else {
        return Err(Failure::new(format!("{} holds no program", folder.display()))
            .hint("does the page's HTML still have its link data-trunk rel=\"rust\"?"));
    };
    let whole = fs::read_to_string(&script).doing(|| format!("read {}", script.display()))?;
    let pruned = without_classes(&whole)
        .ok_or_else(|| Failure::new("the program's script lacks the classes that are taken out of it"))
        .map_err(|failure| failure.hint("wasm-bindgen may write them otherwise now: see xtask/src/prune.rs"))?;
    let path = |file: &Path| file.display().to_string();
    let graph = folder.join("reached.json");
    fs::write(&graph, reached(&pruned).to_string()).doing(|| format!("write {}", graph.display()))?;
    // The functions' names are needed once more: those of one name, of different types, are put side by side.
    shell
        .cmd("wasm-metadce")
        .args(["-g", &format!("--graph-file={}", path(&graph)), &path(&wasm)])
        .args(["-o", &path(&wasm)])
        .read()
        .ok_or_else(|| Failure::new("wasm-metadce does not run").hint("it is part of binaryen, beside wasm-opt"))?;
    shell
        .cmd("wasm-opt")
        .args(WASM_OPT)
        .args([&*path(&wasm), "-o", &path(&wasm)])
        .run("the lines above say what it does not read")?;
    fs::remove_file(&graph).doing(|| format!("remove {}", graph.display()))?;
    fs::write(&script, pruned).doing(|| format!("write {}", script.display()))
}

/// The script that wasm-bindgen writes; boot.js is ours.
fn script_of(all: &[PathBuf]) -> Option<PathBuf> {
    let is_written = |file: &&PathBuf| {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        file.extension().is_some_and(|ending| ending == "js") && name.contains('-')
    };
    all.iter().find(is_written).cloned()
}

/// The script without those classes; `None` if one is not there as expected.
fn without_classes(script: &str) -> Option<String> {
    // The first class may stand on the first line.
    let mut script = format!("\n{script}");
    for class in NEVER_MADE {
        script = without(&script, &format!("\nexport class {class} {{"), "\n}\n")?;
        script = without(&script, &format!("\nif (Symbol.dispose) {class}."), "\n").unwrap_or(script);
        script = without(&script, &format!("\nconst {class}Finalization"), ";\n")?;
        if script.contains(class) {
            return None;
        }
    }
    Some(script)
}

/// A text without what is between two others, those included, except for the line break before.
fn without(text: &str, from: &str, to: &str) -> Option<String> {
    let (before, behind) = text.split_once(from)?;
    let (_, after) = behind.split_once(to)?;
    Some(format!("{before}\n{after}"))
}

/// What the script calls, as wasm-metadce takes it: every other export goes.
fn reached(script: &str) -> serde_json::Value {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut names: Vec<&str> =
        script.split("wasm.").skip(1).map(|rest| rest.split(|c| !is_name(c)).next().unwrap_or_default()).collect();
    names.sort_unstable();
    names.dedup();
    let exports = names.iter().map(|name| json!({ "name": format!("export {name}"), "export": name }));
    let root = json!({ "name": "page", "root": true,
        "reaches": names.iter().map(|name| format!("export {name}")).collect::<Vec<_>>() });
    std::iter::once(root).chain(exports).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(name: &str) -> String {
        format!(
            "\nexport class {name} {{\n    free() {{\n        wasm.{name}_free(1);\n    }}\n}}\n\
             if (Symbol.dispose) {name}.prototype[Symbol.dispose] = 1;\n\
             const {name}Finalization = (a)\n    ? {{}}\n    : new FinalizationRegistry(p => wasm.__{name}_free(p));\n"
        )
    }

    #[test]
    fn classes_that_are_never_made_go_and_the_rest_stays() {
        let classes: String = NEVER_MADE.iter().map(|name| class(name)).collect();
        let script = format!("{classes}let wasm;\nexport function f() {{\n    wasm.f(wasm.memory.buffer);\n}}\n");
        let pruned = without_classes(&script).expect("they are there");
        assert!(pruned.trim().starts_with("let wasm;") && pruned.contains("wasm.f("), "{pruned}");
        assert!(!pruned.contains("Underlying"), "{pruned}");
        let reached = reached(&pruned);
        assert_eq!(reached[0]["reaches"], json!(["export f", "export memory"]));
        assert_eq!(reached[1], json!({ "name": "export f", "export": "f" }));
    }

    #[test]
    fn a_script_without_them_is_told() {
        assert_eq!(without_classes("let wasm;"), None);
        let twice: String = NEVER_MADE.iter().map(|name| class(name)).collect::<String>().repeat(2);
        assert_eq!(without_classes(&twice), None);
    }
}
