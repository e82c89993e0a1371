// pinstripe completion: what a shell needs to complete the command line. It is made of the commands
// and options as CLI11 knows them, so it is right for every one of them. The build installs it.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "tools/commands.h"

namespace pinstripe {
namespace {

using Apps = std::vector<const CLI::App*>;

Apps CommandsOf(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App* one) { return !one->get_group().empty(); });
}

std::vector<const CLI::Option*> OptionsOf(const CLI::App& app) {
  return app.get_options([](const CLI::Option* one) {
    return !one->get_group().empty() && (!one->get_lnames().empty() || !one->get_snames().empty());
  });
}

// Those of `pinstripe` itself may stand behind each of its commands, but for these two.
std::vector<const CLI::Option*> OptionsAt(const CLI::App& root, const CLI::App& app) {
  std::vector<const CLI::Option*> options = OptionsOf(app);
  if (&app == &root) return options;
  for (const CLI::Option* option : OptionsOf(root)) {
    if (option != root.get_help_ptr() && option != root.get_version_ptr()) {
      options.push_back(option);
    }
  }
  return options;
}

bool TakesValue(const CLI::Option& option) { return option.get_items_expected_max() > 0; }

// As they are typed: --long and -s.
std::vector<std::string> NamesOf(const CLI::Option& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.get_snames()) names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
  return names;
}

std::string FirstLine(const std::string& text) { return text.substr(0, text.find('\n')); }

// A shell takes it for one word, whatever is in it.
std::string Quoted(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

std::string FishQuoted(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + "'";
}

// One command, with the words that lead to it: "dev up", and "" for `pinstripe` itself.
struct Command {
  std::string path;
  const CLI::App* app;
};

void AddCommands(const CLI::App& app, const std::string& path, std::vector<Command>& commands) {
  commands.push_back({path, &app});
  for (const CLI::App* one : CommandsOf(app)) {
    AddCommands(*one, path.empty() ? one->get_name() : path + " " + one->get_name(), commands);
  }
}

std::vector<Command> AllCommands(const CLI::App& app) {
  std::vector<Command> commands;
  AddCommands(app, "", commands);
  return commands;
}

// The pattern of a `case` that finds out whether a word goes one command further.
std::string StepsPattern(const std::vector<Command>& commands, const char* between) {
  std::string pattern;
  for (const auto& [path, app] : commands) {
    if (path.empty()) continue;
    const std::string step = path.find(' ') == std::string::npos ? " " + path : path;
    pattern += (pattern.empty() ? "" : between) + Quoted(step);
  }
  return pattern;
}

// --- bash ---

// Where nothing is offered bash offers files: `complete -o default`.
std::string Bash(const CLI::App& root) {
  const std::vector<Command> commands = AllCommands(root);
  std::string words;
  std::string values;
  for (const auto& [path, app] : commands) {
    std::string options;
    for (const CLI::Option* option : OptionsAt(root, *app)) {
      for (const std::string& name : NamesOf(*option)) {
        options += (options.empty() ? "" : " ") + name;
        if (TakesValue(*option)) {
          values += fmt::format("{}'{}|{}'", values.empty() ? "" : " | ", path, name);
        }
      }
    }
    std::string below;
    for (const CLI::App* one : CommandsOf(*app))
      below += (below.empty() ? "" : " ") + one->get_name();
    words += fmt::format("    '{}') options='{}' commands='{}' ;;\n", path, options, below);
  }
  return fmt::format(R"(# Completion of pinstripe for bash, made by `pinstripe completion bash`.
_pinstripe() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} command='' options='' commands='' word place
  for ((place = 1; place < COMP_CWORD; ++place)); do
    word=${{COMP_WORDS[place]}}
    case "$command $word" in
      {}) command=${{command:+$command }}$word ;;
    esac
  done
  COMPREPLY=()
  case "$command|${{COMP_WORDS[COMP_CWORD - 1]}}" in
    {}) return ;;
  esac
  case $command in
{}  esac
  if [[ $current == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$options" -- "$current")
  elif [[ $commands ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$commands" -- "$current")
  fi
}}
complete -o default -F _pinstripe pinstripe
)",
                     StepsPattern(commands, " | "), values, words);
}

// --- zsh ---

std::string ZshFunction(const std::string& path) {
  std::string name = "_pinstripe";
  for (const char c : path.empty() ? path : " " + path) name += c == ' ' || c == '-' ? '_' : c;
  return name;
}

// In the brackets of _arguments.
std::string ZshDescription(const std::string& text) {
  std::string escaped;
  for (const char c : FirstLine(text)) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') escaped += '\\';
    escaped += c;
  }
  return escaped;
}

// What CLI11 calls the type has what checks add behind a colon: "TEXT:{commit,durable}".
std::string ZshValue(const std::string& type) {
  const size_t colon = type.find(':');
  std::string choices = colon == std::string::npos ? "" : type.substr(colon + 1);
  const bool is_choice = choices.size() > 2 && choices.front() == '{' && choices.back() == '}';
  if (!is_choice) return ":" + type.substr(0, colon) + ":_files";
  choices = choices.substr(1, choices.size() - 2);
  std::ranges::replace(choices, ',', ' ');
  return fmt::format(":{}:({})", type.substr(0, colon), choices);
}

std::string Zsh(const CLI::App& root) {
  std::string text =
      "#compdef pinstripe\n# Completion of pinstripe for zsh, made by `pinstripe completion "
      "zsh`.\n";
  for (const auto& [path, app] : AllCommands(root)) {
    std::string arguments;
    for (const CLI::Option* option : OptionsAt(root, *app)) {
      const std::vector<std::string> names = NamesOf(*option);
      std::string others;
      for (const std::string& name : names) others += (others.empty() ? "" : " ") + name;
      for (const std::string& name : names) {
        const bool is_long = name.starts_with("--");
        arguments +=
            "    " +
            Quoted(fmt::format("({}){}{}[{}]{}", others, name,
                               !TakesValue(*option) ? ""
                               : is_long            ? "="
                                                    : "+",
                               ZshDescription(option->get_description()),
                               TakesValue(*option) ? ZshValue(option->get_type_name()) : "")) +
            " \\\n";
      }
    }
    const Apps below = CommandsOf(*app);
    if (below.empty()) {
      text += fmt::format("\n{}() {{\n  _arguments \\\n{}    '*:file:_files'\n}}\n",
                          ZshFunction(path), arguments);
      continue;
    }
    std::string descriptions;
    std::string calls;
    for (const CLI::App* one : below) {
      const std::string name = one->get_name();
      descriptions += "        " + Quoted(name + ":" + FirstLine(one->get_description())) + "\n";
      calls += fmt::format("        {}) {} ;;\n", name,
                           ZshFunction(path.empty() ? name : path + " " + name));
    }
    text += fmt::format(R"(
{0}() {{
  local curcontext=$curcontext state line
  local -a commands
  typeset -A opt_args
  _arguments -C \
{1}    '1: :->command' '*:: :->arguments'
  case $state in
    command)
      commands=(
{2}      )
      _describe -t commands command commands
      ;;
    arguments)
      case $line[1] in
{3}      esac
      ;;
  esac
}}
)",
                        ZshFunction(path), arguments, descriptions, calls);
  }
  return text + "\n[[ $funcstack[1] != _pinstripe ]] || _pinstripe \"$@\"\n";
}

// --- fish ---

std::string Fish(const CLI::App& root) {
  const std::vector<Command> commands = AllCommands(root);
  std::string text =
      fmt::format(R"(# Completion of pinstripe for fish, made by `pinstripe completion fish`.
function __pinstripe_at
    set -l at ''
    for word in (commandline -opc)[2..]
        switch "$at $word"
            case {}
                set at (string trim -- "$at $word")
        end
    end
    test "$at" = "$argv"
end
)",
                  StepsPattern(commands, " "));
  for (const auto& [path, app] : commands) {
    const std::string here = fmt::format("complete -c pinstripe -n \"__pinstripe_at '{}'\"", path);
    for (const CLI::App* one : CommandsOf(*app)) {
      text += fmt::format("{} -f -a {} -d {}\n", here, one->get_name(),
                          FishQuoted(FirstLine(one->get_description())));
    }
    for (const CLI::Option* option : OptionsAt(root, *app)) {
      text += here;
      for (const std::string& name : option->get_snames()) text += " -s " + name;
      for (const std::string& name : option->get_lnames()) text += " -l " + name;
      text += fmt::format("{} -d {}\n", TakesValue(*option) ? " -r" : "",
                          FishQuoted(FirstLine(option->get_description())));
    }
  }
  return text;
}

}  // namespace

void AddCompletionCommand(CLI::App& app, Action& chosen) {
  CLI::App* command = app.add_subcommand("completion", "Print the completion for a shell");
  command->group("");  // not for people: the packages have what it prints
  auto shell = std::make_shared<std::string>();
  command->add_option("SHELL", *shell, "bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  command->callback([&app, &chosen, shell] {
    chosen = [&app, shell](Runtime&) -> Result<int> {
      fmt::print("{}", *shell == "bash" ? Bash(app) : *shell == "zsh" ? Zsh(app) : Fish(app));
      return 0;
    };
  });
}

}  // namespace pinstripe
