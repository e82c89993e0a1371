// Checks JSON against a schema of an OpenAPI document: the part of the language that
// console/page/openapi.json uses. What it does not know fails.

#pragma once

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string>

namespace pinstripe {

class Schema {
 public:
  explicit Schema(nlohmann::json document) : document_(std::move(document)) {}

  const nlohmann::json& document() const { return document_; }

  // What is wrong with an answer to `method path`, of this status; empty: nothing is.
  std::string Complaint(const std::string& path, const std::string& method, int status,
                        const nlohmann::json& answer) const {
    const auto& paths = document_["paths"];
    if (!paths.contains(path) || !paths[path].contains(method)) return path + " is not in it";
    const auto& responses = paths[path][method]["responses"];
    const std::string code = std::to_string(status);
    if (!responses.contains(code) && status < 300) return code + " is not in it";
    const auto& response =
        Resolved(responses.contains(code) ? responses[code] : responses["default"]);
    return Complaint(response["content"]["application/json"]["schema"], answer, "answer");
  }

 private:
  const nlohmann::json& Resolved(const nlohmann::json& schema) const {
    if (!schema.contains("$ref")) return schema;
    const std::string reference = schema["$ref"];
    return Resolved(document_[nlohmann::json::json_pointer(reference.substr(1))]);
  }

  std::string Complaint(const nlohmann::json& with_reference, const nlohmann::json& value,
                        const std::string& where) const {
    static const std::set<std::string> known{
        "type",    "properties", "required", "items",       "enum",
        "minimum", "maximum",    "default",  "description", "additionalProperties",
        "nullable"};
    const nlohmann::json& schema = Resolved(with_reference);
    for (const auto& [key, what] : schema.items()) {
      if (!known.contains(key)) return fmt::format("{}: nobody checks {}", where, key);
    }
    if (schema.value("nullable", false) && value.is_null()) return "";
    const std::string type = schema.at("type");
    const bool fits =
        (type == "object" && value.is_object()) || (type == "array" && value.is_array()) ||
        (type == "string" && value.is_string()) || (type == "boolean" && value.is_boolean()) ||
        (type == "integer" && value.is_number_integer()) || (type == "number" && value.is_number());
    if (!fits) return fmt::format("{} is no {}: {}", where, type, value.dump().substr(0, 100));
    if (schema.contains("enum")) {
      bool is_one = false;
      for (const auto& one : schema["enum"]) is_one = is_one || one == value;
      if (!is_one) return fmt::format("{} is {}", where, value.dump());
    }
    if (type == "array" && schema.contains("items")) {
      for (size_t i = 0; i < value.size(); ++i) {
        const std::string why =
            Complaint(schema["items"], value[i], fmt::format("{}[{}]", where, i));
        if (!why.empty()) return why;
      }
    }
    return type == "object" ? ComplaintOfObject(schema, value, where) : "";
  }

  std::string ComplaintOfObject(const nlohmann::json& schema, const nlohmann::json& value,
                                const std::string& where) const {
    for (const auto& key : schema.value("required", nlohmann::json::array())) {
      if (!value.contains(key)) return fmt::format("{} lacks {}", where, key.dump());
    }
    const auto properties = schema.value("properties", nlohmann::json::object());
    const bool is_closed = schema.contains("additionalProperties");
    for (const auto& [key, part] : value.items()) {
      if (!properties.contains(key)) {
        if (is_closed) return fmt::format("{} has {}", where, key);
        continue;
      }
      const std::string why = Complaint(properties[key], part, where + "." + key);
      if (!why.empty()) return why;
    }
    return "";
  }

  const nlohmann::json document_;
};

}  // namespace pinstripe
