//! `Debug` for types most of whose fields say nothing, or may not be shown.

/// Implements `Debug` for a type with the given fields alone, each with an expression for its
/// value: `debug_fields!(Wheel, it => len: it.len)`. For the crates of this workspace.
#[doc(hidden)]
#[macro_export]
macro_rules! debug_fields {
    ($type:ident $(, $it:ident => $($field:ident: $value:expr),+)?) => {
        impl ::std::fmt::Debug for $type {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                $(let $it = self;)?
                f.debug_struct(stringify!($type))
                    $($(.field(stringify!($field), &$value))+)?
                    .finish_non_exhaustive()
            }
        }
    };
}
