//! The module in which an operation runs.

use std::cell::{Cell, RefCell};

use crate::gpt::tensors::Category;

/// Module and block of an operation, with the category of its tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Scope {
    /// Index into [`Modules::paths`].
    pub module: u16,
    /// Index of the block, if the module belongs to one.
    pub layer: Option<u16>,
    /// Category of activations and their gradients.
    pub category: Category,
}

impl Scope {
    /// Outside of all modules.
    pub(super) const ROOT: Self = Self { module: ROOT, layer: None, category: Category::Activations };
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Module {
    parent: u16,
    name: &'static str,
    is_block: bool,
}

/// The modules that a run entered, and the current one.
#[derive(Debug)]
pub struct Modules {
    modules: RefCell<Vec<Module>>,
    current: Cell<Scope>,
}

/// Index of the module that contains all others.
const ROOT: u16 = 0;

impl Default for Modules {
    fn default() -> Self {
        let root = Module { parent: ROOT, name: "", is_block: false };
        Self { modules: RefCell::new(vec![root]), current: Cell::new(Scope::ROOT) }
    }
}

impl Modules {
    /// The current scope.
    pub fn current(&self) -> Scope {
        self.current.get()
    }

    /// Enters a scope that an earlier operation had.
    pub fn enter_scope(&self, scope: Scope) -> ScopeGuard<'_> {
        ScopeGuard { modules: self, before: self.current.replace(scope) }
    }

    /// Enters a child of the current module.
    pub fn enter(&self, name: &'static str, layer: Option<u64>) -> ScopeGuard<'_> {
        let scope = self.current.get();
        let child = Module { parent: scope.module, name, is_block: layer.is_some() };
        let modules = &mut *self.modules.borrow_mut();
        let at = modules.iter().position(|module| *module == child).unwrap_or_else(|| {
            modules.push(child);
            modules.len() - 1
        });
        let layer = layer.and_then(|layer| u16::try_from(layer).ok()).or(scope.layer);
        self.enter_scope(Scope { module: u16::try_from(at).unwrap_or(u16::MAX), layer, ..scope })
    }

    /// Paths of all modules, as in `named_modules` of PyTorch, with `*` for the number of a block.
    pub fn paths(&self) -> Vec<String> {
        let mut paths: Vec<String> = Vec::new();
        for module in &*self.modules.borrow() {
            let parent = paths.get(usize::from(module.parent)).map_or("", String::as_str);
            let dot = if parent.is_empty() { "" } else { "." };
            let number = if module.is_block { ".*" } else { "" };
            paths.push([parent, dot, module.name, number].concat());
        }
        paths
    }
}

/// Returns to the earlier scope when it is dropped.
#[derive(Debug)]
#[must_use]
pub struct ScopeGuard<'m> {
    modules: &'m Modules,
    before: Scope,
}

impl Drop for ScopeGuard<'_> {
    fn drop(&mut self) {
        self.modules.current.set(self.before);
    }
}
