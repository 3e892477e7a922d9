//! Which variables a child may be given, by name alone.

/// Whether a variable makes a program load or run code of whoever sets it.
pub fn is_loader_variable(name: &str) -> bool {
    const PREFIXES: [&str; 12] = [
        "BASH_FUNC_",
        "CORECLR_PROFILER",
        "COR_PROFILER",
        "DYLD_",
        "GIT_CONFIG_",
        "LD_",
        // Lua has one more of each for every version of itself.
        "LUA_CPATH",
        "LUA_INIT",
        "LUA_PATH",
        "OPENSSL_CONF",
        "PERL5",
        "PYTHON",
    ];
    const NAMES: [&str; 56] = [
        "ANT_OPTS",
        "AWKLIBPATH",
        "AWKPATH",
        "BASHOPTS",
        "BASH_ENV",
        "BUNDLE_GEMFILE",
        "BUN_OPTIONS",
        "CATALINA_OPTS",
        "CLASSPATH",
        "DOTNET_ADDITIONAL_DEPS",
        "DOTNET_SHARED_STORE",
        "DOTNET_STARTUP_HOOKS",
        "ELECTRON_RUN_AS_NODE",
        "ENV",
        "ERL_AFLAGS",
        "ERL_FLAGS",
        "ERL_LIBS",
        "ERL_ZFLAGS",
        "GCONV_PATH",
        "GEM_HOME",
        "GEM_PATH",
        "GIO_EXTRA_MODULES",
        "GIT_EXEC_PATH",
        "GIT_EXTERNAL_DIFF",
        "GIT_TEMPLATE_DIR",
        "GLIBC_TUNABLES",
        "GRADLE_OPTS",
        "GTK_MODULES",
        "IFS",
        "JAVA_OPTS",
        "JAVA_TOOL_OPTIONS",
        "JDK_JAVA_OPTIONS",
        "JULIA_LOAD_PATH",
        "MAVEN_OPTS",
        "NODE_OPTIONS",
        "NODE_PATH",
        "NODE_REPL_EXTERNAL_MODULE",
        "OPENSSL_ENGINES",
        "OPENSSL_MODULES",
        "PERLLIB",
        "PHPRC",
        "PHP_INI_SCAN_DIR",
        "PROMPT_COMMAND",
        "PS4",
        "QT_PLUGIN_PATH",
        "RUBYLIB",
        "RUBYOPT",
        "RUBYPATH",
        "RUSTC_WORKSPACE_WRAPPER",
        "RUSTC_WRAPPER",
        "R_ENVIRON_USER",
        "R_PROFILE_USER",
        "SHELLOPTS",
        "TCLLIBPATH",
        "ZDOTDIR",
        "_JAVA_OPTIONS",
    ];
    PREFIXES.iter().any(|prefix| name.starts_with(prefix)) || NAMES.contains(&name)
}

/// Why an operator's entry may not set a variable, if it may not.
pub(crate) fn refusal(name: &str, allow_loader_variables: bool) -> Option<&'static str> {
    if name.trim().is_empty() || name.contains(['=', '\0']) {
        Some("that is no name of a variable")
    } else if name == "PATH" {
        Some("where programs are found is the node's to say; name PATH in env_allow instead")
    } else if name.starts_with("WEFT_") || matches!(name, "TRACEPARENT" | "TRACESTATE") {
        Some("only weft itself sets it")
    } else if is_loader_variable(name) && !allow_loader_variables {
        Some("it makes programs load code, and the operator of this node does not allow such variables")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loader_variables_are_known_by_name_and_by_prefix() {
        for name in ["LD_PRELOAD", "DYLD_X", "BASH_FUNC_a%%", "PYTHONPATH", "NODE_OPTIONS", "OPENSSL_CONF"] {
            assert!(is_loader_variable(name), "{name}");
        }
        for name in ["PATH", "HOME", "LANG", "API_KEY", "LDAP_URL", "ENVIRONMENT", "GIT_AUTHOR_NAME"] {
            assert!(!is_loader_variable(name), "{name}");
        }
    }

    #[test]
    fn an_entry_sets_neither_the_path_nor_what_weft_says_nor_loader_variables_unasked() {
        for name in ["", " ", "A=B", "A\0", "PATH", "WEFT_NODE", "WEFT_X", "TRACEPARENT", "TRACESTATE"] {
            assert!(refusal(name, true).is_some(), "{name:?}");
        }
        assert!(refusal("LD_PRELOAD", false).is_some());
        assert!(refusal("LD_PRELOAD", true).is_none() && refusal("API_KEY", false).is_none());
    }
}
