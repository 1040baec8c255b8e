//! The workspace's packages as `cargo metadata` lists them, so that a new package is built, checked and tested unasked.

use crate::{
    failure::{Doing, Failure, Result},
    shell::Shell,
};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// The package of the end-to-end tests: it needs the programs that are built from the others.
pub const END_TO_END: &str = "headroom-tests";

/// What decides how a package is checked.
#[derive(Debug, Clone)]
pub struct Package {
    pub name: String,
    /// Its folder.
    pub folder: PathBuf,
    /// It has features, so it is checked with all and with none of them.
    pub has_features: bool,
    /// It has a library that can have documentation tests.
    pub has_library: bool,
    /// Names of its benchmarks.
    pub benches: Vec<String>,
    /// Names of the workspace's packages that it is built from; not those that only its tests use.
    pub built_from: Vec<String>,
}

/// Every package of the workspace.
#[derive(Debug)]
pub struct Packages(Vec<Package>);

impl Packages {
    /// Asks cargo; nothing is fetched for it.
    pub fn read(shell: &Shell) -> Result<Self> {
        let json = shell
            .cmd("cargo")
            .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
            .read()
            .ok_or_else(|| {
                Failure::new("`cargo metadata` failed").hint("run `cargo metadata --no-deps` and see what it says")
            })?;
        Self::parse(&json)
    }

    fn parse(json: &str) -> Result<Self> {
        let metadata: Value = serde_json::from_str(json).doing(|| "read what `cargo metadata` prints".into())?;
        let packages: Vec<_> = array(&metadata["packages"]).iter().map(package).collect();
        if packages.is_empty() { Err(Failure::new("`cargo metadata` lists no package")) } else { Ok(Self(packages)) }
    }

    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = &Package> {
        self.0.iter()
    }

    /// Those of the page: they run in a browser.
    pub fn of_page<'a>(&'a self, root: &'a Path) -> impl Iterator<Item = &'a Package> {
        self.all().filter(move |package| package.folder.starts_with(root.join("web")))
    }

    /// Those that run on the machine itself.
    pub fn native<'a>(&'a self, root: &'a Path) -> impl Iterator<Item = &'a Package> {
        self.all().filter(move |package| !package.folder.starts_with(root.join("web")))
    }

    /// The folders of `start` and of everything in the workspace that it is built from.
    pub fn folders_behind<'a>(&'a self, start: impl Iterator<Item = &'a Package>) -> Vec<&'a Path> {
        let mut found: Vec<&Package> = Vec::new();
        let mut open: Vec<&Package> = start.collect();
        while let Some(package) = open.pop() {
            if found.iter().all(|known| known.name != package.name) {
                found.push(package);
                open.extend(self.all().filter(|other| package.built_from.contains(&other.name)));
            }
        }
        found.into_iter().map(|package| package.folder.as_path()).collect()
    }
}

fn package(json: &Value) -> Package {
    let kinds = |target: &Value| array(&target["kind"]).iter().filter_map(Value::as_str).map(str::to_owned).collect();
    let targets: Vec<(Vec<String>, String)> =
        array(&json["targets"]).iter().map(|target| (kinds(target), text(&target["name"]))).collect();
    let of_kind = |kind: &'static str| targets.iter().filter(move |(kinds, _)| kinds.iter().any(|found| found == kind));
    Package {
        name: text(&json["name"]),
        folder: Path::new(&text(&json["manifest_path"])).parent().unwrap_or(Path::new("")).to_path_buf(),
        has_features: json["features"]
            .as_object()
            .is_some_and(|features| features.keys().any(|name| name != "default")),
        has_library: of_kind("lib").chain(of_kind("rlib")).next().is_some(),
        benches: of_kind("bench").map(|(_, name)| name.clone()).collect(),
        built_from: array(&json["dependencies"])
            .iter()
            .filter(|dependency| dependency["path"].is_string() && dependency["kind"] != "dev")
            .map(|dependency| text(&dependency["name"]))
            .collect(),
    }
}

fn array(json: &Value) -> &[Value] {
    json.as_array().map_or(&[], Vec::as_slice)
}

fn text(json: &Value) -> String {
    json.as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const METADATA: &str = r#"{"packages": [
        {"name": "page", "manifest_path": "/r/web/Cargo.toml", "features": {"default": []},
         "targets": [{"kind": ["bin"], "name": "page"}],
         "dependencies": [{"name": "base", "path": "/r/base", "kind": null},
                          {"name": "helper", "path": "/r/helper", "kind": "dev"}]},
        {"name": "base", "manifest_path": "/r/base/Cargo.toml", "features": {"fast": []},
         "targets": [{"kind": ["lib"], "name": "base"}, {"kind": ["bench"], "name": "speed"}], "dependencies": []},
        {"name": "helper", "manifest_path": "/r/helper/Cargo.toml", "features": {}, "targets": [], "dependencies": []}
    ]}"#;

    #[test]
    fn a_package_says_how_it_is_checked() {
        let packages = Packages::parse(METADATA).expect("metadata");
        let [page, base, _] = &packages.0[..] else { panic!("three packages: {packages:?}") };
        assert!(!page.has_features && base.has_features, "`default` alone is not a choice");
        assert!(!page.has_library && base.has_library);
        assert_eq!(base.benches, ["speed"]);
    }

    #[test]
    fn the_page_is_behind_its_sources_but_not_its_tests() {
        let packages = Packages::parse(METADATA).expect("metadata");
        let root = Path::new("/r");
        let mut folders = packages.folders_behind(packages.of_page(root));
        folders.sort();
        assert_eq!(folders, [Path::new("/r/base"), Path::new("/r/web")]);
        assert_eq!(packages.native(root).count(), 2);
    }

    #[test]
    fn no_package_at_all_is_an_error() {
        Packages::parse(r#"{"packages": []}"#).expect_err("a workspace has packages");
    }
}
