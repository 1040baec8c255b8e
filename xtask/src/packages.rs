//! The workspace's packages from `cargo metadata`, so that new packages are built, checked and tested automatically.

use crate::{
    failure::{Failure, IoContext, Result},
    shell::Shell,
};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// The package of the end-to-end tests, which needs the built programs.
pub const END_TO_END: &str = "headroom-tests";

/// Properties that decide how a package is checked.
#[derive(Debug, Clone)]
pub struct Package {
    pub name: String,
    /// Its directory.
    pub folder: PathBuf,
    /// Whether it has features; if so it is checked with all and with none of them.
    pub has_features: bool,
    /// Names of its benchmarks.
    pub benches: Vec<String>,
    /// Names of the workspace's packages that it depends on, except for tests.
    pub built_from: Vec<String>,
}

/// Every package of the workspace.
#[derive(Debug)]
pub struct Packages(Vec<Package>);

impl Packages {
    /// Runs `cargo metadata` offline.
    pub fn read(shell: &Shell) -> Result<Self> {
        let json = shell
            .cmd("cargo")
            .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
            .read()
            .ok_or_else(|| {
                Failure::new("`cargo metadata` failed").hint("run `cargo metadata --no-deps` to see the error")
            })?;
        Self::parse(&json)
    }

    fn parse(json: &str) -> Result<Self> {
        let metadata: Value = serde_json::from_str(json).doing(|| "read what `cargo metadata` prints".into())?;
        let packages: Vec<_> = array(&metadata["packages"]).iter().map(package).collect();
        if packages.is_empty() { Err(Failure::new("`cargo metadata` lists no package")) } else { Ok(Self(packages)) }
    }

    pub fn all(&self) -> impl Iterator<Item = &Package> {
        self.0.iter()
    }

    /// Returns the page's packages, which run in a browser.
    pub fn of_page<'a>(&'a self, root: &'a Path) -> impl Iterator<Item = &'a Package> {
        self.all().filter(move |package| package.folder.starts_with(root.join("web")))
    }

    /// Returns the packages that run natively.
    pub fn native<'a>(&'a self, root: &'a Path) -> impl Iterator<Item = &'a Package> {
        self.all().filter(move |package| !package.folder.starts_with(root.join("web")))
    }

    /// Returns the directories of `start` and of its dependencies in the workspace.
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
