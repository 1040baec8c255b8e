//! What changes in a view, behind one type a kind.
//!
//! Each closure in a view makes its own copy of the framework's code for it; a hundred of them were a third of the
//! page's size. Boxed, they share one.

use leptos::{
    attr::{Attribute, any_attribute::AnyAttribute},
    prelude::*,
    tachys::{
        hydration::Cursor,
        renderer::types::{Element, Node},
        view::{Mountable, Position, PositionState, add_attr::AddAnyAttr},
    },
};

/// Words, or an attribute's, that change.
pub fn words(mut words: impl FnMut() -> String + Send + 'static) -> Box<dyn FnMut() -> Option<String> + Send> {
    Box::new(move || Some(words()))
}

/// Words, or an attribute's, that come and go.
pub fn some_words(words: impl FnMut() -> Option<String> + Send + 'static) -> Box<dyn FnMut() -> Option<String> + Send> {
    Box::new(words)
}

/// A property or a class that is set and unset.
pub fn flag(flag: impl FnMut() -> bool + Send + 'static) -> Box<dyn FnMut() -> bool + Send> {
    Box::new(flag)
}

/// A part of a view that is made anew.
pub fn part<V: IntoView + 'static>(mut part: impl FnMut() -> V + Send + 'static) -> Box<dyn FnMut() -> Part + Send> {
    Box::new(move || part().into_part())
}

/// A part of a view that is made anew where what it is made of has changed, and stays where that is the same again. A
/// memo before a [`part`] does so too, with a kilobyte of code for each kind of value.
pub fn part_of<K: Clone + PartialEq + Send + 'static, V: IntoView + 'static>(
    of: impl FnMut() -> K + Send + 'static,
    mut view: impl FnMut(K) -> V + Send + 'static,
) -> Box<dyn FnMut() -> Part + Send> {
    kept(Box::new(of), Box::new(move |of| view(of).into_part()))
}

/// One copy for all parts that are made of the same kind of value.
fn kept<K: Clone + PartialEq + Send + 'static>(
    mut of: Box<dyn FnMut() -> K + Send>,
    mut view: Box<dyn FnMut(K) -> Part + Send>,
) -> Box<dyn FnMut() -> Part + Send> {
    // What the view has is its own: it is not to end when the effect runs and finds nothing new.
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

/// Makes a part of any view, where views of several kinds stand in one place: the framework's own way for that carries
/// code for each kind to become each other.
pub trait IntoPart {
    /// The view, whatever it is.
    fn into_part(self) -> Part;
}

impl<V: IntoView + 'static> IntoPart for V {
    fn into_part(self) -> Part {
        Part(Some(Box::new(move || Made(Box::new(self.into_view().build())))))
    }
}

/// A view that can only be made; nothing where what is there stays. What it replaces is taken out instead of being
/// compared, which costs a short list nothing to speak of and the page no code.
pub struct Part(Option<Box<dyn FnOnce() -> Made + Send>>);

impl Part {
    /// It, with what it makes when it is built as the owner's.
    fn owned_by(self, owner: Owner) -> Self {
        Self(Some(Box::new(move || owner.with(|| self.build()))))
    }
}

/// What was made.
pub struct Made(Box<dyn Mountable>);

impl Render for Part {
    type State = Made;

    fn build(self) -> Made {
        self.0.map_or_else(|| Made(Box::new(Render::build(()))), |make| make())
    }

    fn rebuild(self, state: &mut Made) {
        let Some(make) = self.0 else { return };
        let mut made = make();
        state.0.insert_before_this(&mut *made.0);
        state.0.unmount();
        *state = made;
    }
}

impl Mountable for Made {
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

/// The page is drawn in a browser and nowhere else.
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

    fn hydrate<const FROM_SERVER: bool>(self, _cursor: &Cursor, _position: &PositionState) -> Made {
        self.build()
    }

    fn into_owned(self) -> Self {
        self
    }
}
