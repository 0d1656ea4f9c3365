// gotemplate renders templates as Tinkerbell does: Go's text/template with missingkey=error and sprig's hermetic functions,
// beside toYaml and fromYaml. Each line of its input is a JSON object {template, data}, each line of its output one of
// {text} or {error}. Numbers of the data are int64 or float64, as in the unstructured objects of Kubernetes. With --functions it
// prints the names of the functions instead, one a line.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"maps"
	"os"
	"slices"
	"strings"
	"text/template"

	"github.com/Masterminds/sprig/v3"
	"sigs.k8s.io/yaml"
)

type question struct {
	Template string `json:"template"`
	Data     any    `json:"data"`
}

type answer struct {
	// Bytes, for a template may cut a text in the middle of a character.
	Text  []byte `json:"text"`
	Error string `json:"error,omitempty"`
}

func numbers(value any) any {
	switch value := value.(type) {
	case json.Number:
		if whole, err := value.Int64(); err == nil {
			return whole
		}
		float, err := value.Float64()
		if err != nil {
			log.Fatal(err)
		}
		return float
	case []any:
		for i := range value {
			value[i] = numbers(value[i])
		}
	case map[string]any:
		for key := range value {
			value[key] = numbers(value[key])
		}
	}
	return value
}

func functions() template.FuncMap {
	all := sprig.HermeticTxtFuncMap()
	all["toYaml"] = func(value any) (string, error) {
		text, err := yaml.Marshal(value)
		return strings.TrimSuffix(string(text), "\n"), err
	}
	all["fromYaml"] = func(text string) (value any, err error) {
		if strings.TrimSpace(text) == "" {
			return nil, errors.New("the text is empty")
		}
		err = yaml.Unmarshal([]byte(text), &value)
		return value, err
	}
	return all
}

func render(asked question) (text []byte, err error) {
	parsed, err := template.New("template").Option("missingkey=error").Funcs(functions()).Parse(asked.Template)
	if err != nil {
		return nil, err
	}
	var rendered bytes.Buffer
	err = parsed.Execute(&rendered, numbers(asked.Data))
	return rendered.Bytes(), err
}

func main() {
	if slices.Contains(os.Args[1:], "--functions") {
		for _, name := range slices.Sorted(maps.Keys(functions())) {
			fmt.Println(name)
		}
		return
	}
	lines := bufio.NewReader(os.Stdin)
	decoder := json.NewDecoder(lines)
	decoder.UseNumber()
	output := bufio.NewWriter(os.Stdout)
	encoder := json.NewEncoder(output)
	for decoder.More() {
		var asked question
		if err := decoder.Decode(&asked); err != nil {
			log.Fatal(err)
		}
		text, err := render(asked)
		told := answer{Text: text}
		if err != nil {
			told = answer{Error: err.Error()}
		}
		if err := encoder.Encode(told); err != nil {
			log.Fatal(err)
		}
	}
	if err := output.Flush(); err != nil {
		log.Fatal(err)
	}
}
