//! Parameters under their names: what a struct of them can do with text.

use std::fmt;

/// Why a parameter was not set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParameterError {
    /// There is none of this name; the names that there are.
    Unknown(String, Vec<&'static str>),
    /// The value is not a whole number within these bounds.
    Value(&'static str, u64, u64),
    /// There is no algorithm of this name; the names that there are.
    Algorithm(String, Vec<&'static str>),
    /// The text is not `name=value`.
    Syntax(String),
}

impl fmt::Display for ParameterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ParameterError::Unknown(name, names) => {
                write!(f, "no parameter '{name}'; there are {}", names.join(", "))
            }
            ParameterError::Value(name, least, most) => {
                write!(f, "{name} is a whole number from {least} to {most}")
            }
            ParameterError::Algorithm(name, names) => {
                write!(f, "no algorithm '{name}'; there are {}", names.join(", "))
            }
            ParameterError::Syntax(text) => write!(f, "'{text}' is not NAME=VALUE"),
        }
    }
}

impl std::error::Error for ParameterError {}

/// A struct of numbers, each with the values it may have, and perhaps one more that stands for none
/// of them; the struct can be read and set by name. Fields of another kind come last.
macro_rules! parameters {
    (
        $(#[$meta:meta])*
        pub struct $Params:ident {
            $(
                $(#[$doc:meta])*
                $field:ident: $type:ty = $least:literal..=$most:literal $(or $none:literal)?,
            )*
        }
        $(with { $($(#[$rest_doc:meta])* $rest:ident: $rest_type:ty,)* })?
    ) => {
        $(#[$meta])*
        pub struct $Params {
            $($($(#[$rest_doc])* pub $rest: $rest_type,)*)?
            $($(#[$doc])* pub $field: $type,)*
        }

        impl $Params {
            /// Names of the parameters that [`set`](Self::set) takes, in the order of the fields.
            pub const NAMES: &'static [&'static str] = &[$(stringify!($field)),*];

            /// Sets the parameter `name` to a number written in decimal, in the unit of its field.
            ///
            /// # Errors
            /// If there is no such parameter, or the value is none it may have.
            pub fn set(
                &mut self,
                name: &str,
                value: &str,
            ) -> Result<(), $crate::congestion::ParameterError> {
                use $crate::congestion::ParameterError;
                match name {
                    $(stringify!($field) => {
                        let number = value.trim().parse::<$type>().ok();
                        let number = number.filter(|number| {
                            ($least..=$most).contains(number) $(|| *number == $none)?
                        });
                        self.$field = number.ok_or(ParameterError::Value(
                            stringify!($field),
                            $least,
                            $most,
                        ))?;
                        Ok(())
                    })*
                    _ => Err(ParameterError::Unknown(name.to_owned(), Self::NAMES.to_vec())),
                }
            }

            /// Every parameter with its value.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($field), u64::from(self.$field)),)*].into_iter()
            }

            /// The same, with every value that is none it may have brought to the nearest.
            #[must_use]
            pub fn clamped(&self) -> $Params {
                let mut params = self.clone();
                $(if true $(&& params.$field != $none)? {
                    params.$field = params.$field.clamp($least, $most);
                })*
                params
            }
        }
    };
}

pub(crate) use parameters;
