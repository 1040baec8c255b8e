//! Stable codes of error responses. The API's description lists them, and `docs/src/reference/rest.md` explains them.

/// Declares the codes and their names. [`ErrorCode::NAMES`] constructs no variant, so the compiler reports one that no
/// error has.
macro_rules! codes {
    (api { $($variant:ident $name:literal,)* } others { $($other:ident $other_name:literal,)* }) => {
        /// Stable code of an error response, for programs.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum ErrorCode { $($variant,)* $($other,)* }

        impl ErrorCode {
            /// Names of the codes of the REST API.
            pub const NAMES: &[&str] = &[$($name,)*];

            /// Returns the name in responses.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                    $(Self::$other => $other_name,)*
                }
            }
        }
    };
}

codes! {
    api {
        BadRequest "bad_request",
        NoToken "no_token",
        BadToken "bad_token",
        TokenInQuery "token_in_query",
        Scope "scope",
        MissingOrigin "missing_origin",
        ForeignOrigin "foreign_origin",
        ForeignHost "foreign_host",
        UnclearHost "unclear_host",
        BadCode "bad_code",
        NotFound "not_found",
        NoCard "no_card",
        NoRun "no_run",
        NoAlert "no_alert",
        NotEnded "not_ended",
        HasEnded "has_ended",
        NotOurs "not_ours",
        QueueFull "queue_full",
        NotAllowed "not_allowed",
        Config "config",
        Device "device",
        Unavailable "unavailable",
        Elsewhere "elsewhere",
        NothingSaved "nothing_saved",
        NoCheckpoint "no_checkpoint",
        Range "range",
        Folder "folder",
        Changed "changed",
        PreconditionRequired "precondition_required",
        MethodNotAllowed "method_not_allowed",
        TooLarge "too_large",
        TooLate "too_late",
        TooMany "too_many",
        Busy "busy",
        History "history",
        AccessFile "access_file",
        Internal "internal",
    }
    // Codes of `/ws` and of the page's files.
    others {
        NoUpgrade "no_upgrade",
        NoPage "no_page",
        NoEncoding "no_encoding",
    }
}
