//! Enumerations whose values have a name each, in configurations, logs and answers.

/// Declares an enumeration that derives a trait of serde, which reads and writes each value by its
/// name, with `ALL` of its values in their order and the `name` of each.
macro_rules! named {
    (
        $(#[$meta:meta])*
        pub enum $kind:ident { $($(#[$attribute:meta])* $value:ident = $name:literal,)+ }
    ) => {
        $(#[$meta])*
        pub enum $kind { $($(#[$attribute])* #[serde(rename = $name)] $value,)+ }

        impl $kind {
            /// All of them, in the order in which they are declared.
            pub const ALL: [$kind; [$($name),+].len()] = [$($kind::$value),+];

            /// Returns the name that configurations, logs and answers have.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $($kind::$value => $name,)+
                }
            }
        }
    };
}

pub(crate) use named;
