//! Reactive parts of a view, with one type for each kind.
//!
//! Every closure in a view instantiates the framework's code for it; a hundred of them were a third of the page's size.
//! Boxed closures share one instance.

use leptos::{
    attr::{Attribute, any_attribute::AnyAttribute},
    prelude::*,
    tachys::{
        hydration::Cursor,
        renderer::types::{Element, Node},
        view::{Mountable, Position, PositionState, add_attr::AddAnyAttr},
    },
};
use web_sys::MouseEvent;

/// Boxes a changing text or attribute value.
pub fn words(mut words: impl FnMut() -> String + Send + 'static) -> Box<dyn FnMut() -> Option<String> + Send> {
    Box::new(move || Some(words()))
}

/// Boxes a text or attribute that may be absent.
pub fn some_words(words: impl FnMut() -> Option<String> + Send + 'static) -> Box<dyn FnMut() -> Option<String> + Send> {
    Box::new(words)
}

/// Boxes a property or class that is set or unset.
pub fn flag(flag: impl FnMut() -> bool + Send + 'static) -> Box<dyn FnMut() -> bool + Send> {
    Box::new(flag)
}

/// Boxes the action of a button or link.
pub fn act(mut action: impl FnMut() + 'static) -> Box<dyn FnMut(MouseEvent)> {
    Box::new(move |_| action())
}

/// Boxes a part of a view that is rebuilt on every change.
pub fn part<V: IntoView + 'static>(mut part: impl FnMut() -> V + Send + 'static) -> Box<dyn FnMut() -> Part + Send> {
    Box::new(move || part().into_part())
}

/// Boxes a part of a view that is rebuilt on every change except while `pauses` is set. Then it keeps its view.
pub fn part_between<V: IntoView + 'static>(
    pauses: RwSignal<bool>,
    mut part: impl FnMut() -> V + Send + 'static,
) -> Box<dyn FnMut() -> Part + Send> {
    Box::new(move || if pauses.get() { Part(None) } else { part().into_part() })
}

/// Boxes a part of a view that is rebuilt only if its input changes to a different value. A memo before a [`part`] does
/// the same, but adds a kilobyte of code for each type of value.
pub fn part_of<K: Clone + PartialEq + Send + 'static, V: IntoView + 'static>(
    of: impl FnMut() -> K + Send + 'static,
    mut view: impl FnMut(K) -> V + Send + 'static,
) -> Box<dyn FnMut() -> Part + Send> {
    kept(Box::new(of), Box::new(move |of| view(of).into_part()))
}

/// Shares one instance among all parts with the same input type.
fn kept<K: Clone + PartialEq + Send + 'static>(
    mut of: Box<dyn FnMut() -> K + Send>,
    mut view: Box<dyn FnMut(K) -> Part + Send>,
) -> Box<dyn FnMut() -> Part + Send> {
    // The part has its own owner. Otherwise its signals would be disposed when the effect runs and finds no change.
    let owner = Owner::new();
    let mut shown = None;
    Box::new(move || {
        let now = of();
        if shown.as_ref() == Some(&now) {
            return Part(None);
        }
        shown = Some(now.clone());
        let made = owner.with_cleanup(|| view(now));
        made.owned_by(owner.clone())
    })
}

/// Conversion of any view into a [`Part`], for places that show views of different types. The framework's own type for
/// this contains code to convert every type into every other.
pub trait IntoPart {
    /// Erases the view's type.
    fn into_part(self) -> Part;
}

impl<V: IntoView + 'static> IntoPart for V {
    fn into_part(self) -> Part {
        Part(Some(Box::new(move || BuiltView(Box::new(self.into_view().build())))))
    }
}

/// A view that can only be built; `None` leaves the existing view. A rebuild replaces the old view without a
/// comparison, which is cheap for short lists and needs no code.
pub struct Part(Option<Box<dyn FnOnce() -> BuiltView + Send>>);

impl Part {
    /// Builds the view with `owner` as its reactive owner.
    fn owned_by(self, owner: Owner) -> Self {
        Self(Some(Box::new(move || owner.with(|| self.build()))))
    }
}

/// The built view.
pub struct BuiltView(Box<dyn Mountable>);

impl Render for Part {
    type State = BuiltView;

    fn build(self) -> BuiltView {
        self.0.map_or_else(|| BuiltView(Box::new(Render::build(()))), |make| make())
    }

    fn rebuild(self, state: &mut BuiltView) {
        let Some(make) = self.0 else { return };
        let mut made = make();
        state.0.insert_before_this(&mut *made.0);
        state.0.unmount();
        *state = made;
    }
}

impl Mountable for BuiltView {
    fn unmount(&mut self) {
        self.0.unmount();
    }

    fn mount(&mut self, parent: &Element, marker: Option<&Node>) {
        self.0.mount(parent, marker);
    }

    fn insert_before_this(&self, child: &mut dyn Mountable) -> bool {
        self.0.insert_before_this(child)
    }

    fn elements(&self) -> Vec<Element> {
        self.0.elements()
    }
}

impl AddAnyAttr for Part {
    type Output<SomeNewAttr: Attribute> = Self;

    fn add_any_attr<NewAttr: Attribute>(self, _attr: NewAttr) -> Self {
        self
    }
}

/// The page is rendered only in the browser, so the server-side methods do nothing.
impl RenderHtml for Part {
    type AsyncOutput = Self;
    type Owned = Self;

    const MIN_LENGTH: usize = 0;

    fn dry_resolve(&mut self) {}

    async fn resolve(self) -> Self {
        self
    }

    fn to_html_with_buf(
        self,
        _buf: &mut String,
        _position: &mut Position,
        _escape: bool,
        _mark_branches: bool,
        _extra_attrs: Vec<AnyAttribute>,
    ) {
    }

    fn hydrate<const FROM_SERVER: bool>(self, _cursor: &Cursor, _position: &PositionState) -> BuiltView {
        self.build()
    }

    fn into_owned(self) -> Self {
        self
    }
}
