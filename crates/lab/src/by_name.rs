//! Things that a user chooses by name: the name identifies them and is how they are shown.

/// `Debug` and `PartialEq` of a type by its field `name`.
macro_rules! by_name {
    ($type:ident) => {
        impl std::fmt::Debug for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name)
            }
        }

        impl PartialEq for $type {
            fn eq(&self, other: &$type) -> bool {
                self.name == other.name
            }
        }
    };
}

pub(crate) use by_name;

/// An enumeration whose variants have names: for options, tables and records.
macro_rules! named {
    (
        $(#[$about:meta])*
        $visible:vis enum $type:ident {
            $($(#[$variant_about:meta])* $variant:ident = $name:literal,)*
        }
    ) => {
        $(#[$about])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        $visible enum $type {
            $($(#[$variant_about])* $variant,)*
        }

        #[allow(dead_code, reason = "not every enumeration is chosen from, and shown")]
        impl $type {
            /// All of them.
            pub(crate) const ALL: [$type; [$($name),*].len()] = [$($type::$variant),*];

            /// Its name in options, tables and records.
            pub(crate) const fn name(self) -> &'static str {
                match self {
                    $($type::$variant => $name,)*
                }
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}

pub(crate) use named;
