//! Tables of the configuration whose keys have values by default.

/// Declares a table: each key with its type, the function that reads it if it is not read as its
/// type is, and its value if the table does not have the key. Unknown keys are mistakes.
macro_rules! table {
    (
        $(#[$meta:meta])*
        $vis:vis struct $table:ident {
            $(
                $(#[$attribute:meta])*
                $key_vis:vis $key:ident: $type:ty $(as $read:literal)? = $default:expr,
            )+
        }
    ) => {
        $(#[$meta])*
        #[derive(serde::Deserialize)]
        #[serde(default, deny_unknown_fields)]
        $vis struct $table {
            $($(#[$attribute])* $(#[serde(deserialize_with = $read)])? $key_vis $key: $type,)+
        }

        impl Default for $table {
            fn default() -> $table {
                $table { $($key: $default,)+ }
            }
        }
    };
}

pub(crate) use table;
