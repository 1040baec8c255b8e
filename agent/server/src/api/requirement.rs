//! What a route requires of a request.

use headroom_protocol::Scope;

/// The requirement of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteRequirement {
    /// No requirement: the response is the same in every copy of the program.
    Nothing,
    /// An allowed origin.
    Origin,
    /// A token of at least that scope.
    Token(Scope),
}

/// The requirement of routes that only read.
pub const VIEW: RouteRequirement = RouteRequirement::Token(Scope::View);
/// The requirement of routes that change something.
pub const CONTROL: RouteRequirement = RouteRequirement::Token(Scope::Control);
