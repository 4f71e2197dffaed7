// Command patch copies the packages of kube-scheduler's plugins with their tests, and patches the tests so that they
// report every verdict: a call of a plugin's Filter becomes one of record.Filter, which calls it and writes down what it
// answers. Tests become functions of ordinary packages, so that one program runs those of all plugins.
//
//	patch MODULE TARGET PLUGIN...
//
// MODULE is the directory of k8s.io/kubernetes, TARGET the one of the module that the packages are copied into.
package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"log"
	"os"
	"path/filepath"
	"sort"
	"strings"
)

const (
	plugins = "pkg/scheduler/framework/plugins"
	record  = "schedulertables/record"
)

// Methods of plugins and functions beside them whose answers are verdicts, with the number of their arguments.
var (
	methods   = map[string]int{"Filter": 4, "PreFilter": 4, "PreEnqueue": 2}
	functions = map[string]int{"findPodVolumes": 4, "Fits": 2}
)

func main() {
	log.SetFlags(0)
	if len(os.Args) < 4 {
		log.Fatal("usage: patch MODULE TARGET PLUGIN...")
	}
	module, target, names := os.Args[1], os.Args[2], os.Args[3:]
	for _, name := range names {
		if err := patch(filepath.Join(module, plugins, name), filepath.Join(target, name)); err != nil {
			log.Fatalf("%s: %v", name, err)
		}
	}
	if err := os.WriteFile(filepath.Join(target, "tables_test.go"), mainTest(names), 0o644); err != nil {
		log.Fatal(err)
	}
}

// patch copies one package; it fails if no test of it calls what is to be recorded.
func patch(source, target string) error {
	files := token.NewFileSet()
	packages, err := parser.ParseDir(files, source, nil, parser.ParseComments)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(target, 0o755); err != nil {
		return err
	}
	var tests []*ast.File
	for _, one := range packages {
		for name, file := range one.Files {
			if strings.HasSuffix(name, "_test.go") {
				tests = append(tests, file)
			}
			if len(packages) > 1 {
				return fmt.Errorf("has tests in another package, which are not understood")
			}
		}
	}
	calls := map[*ast.File]int{}
	for _, file := range tests {
		calls[file] = rewrite(file)
	}
	wanted := recording(tests)
	if len(wanted) == 0 {
		return fmt.Errorf("no test calls what is to be recorded: the plugin's tests have changed")
	}
	for _, one := range packages {
		for name, file := range one.Files {
			if calls[file] > 0 {
				addImport(file)
			}
			var text bytes.Buffer
			if err := format.Node(&text, files, file); err != nil {
				return err
			}
			base := strings.Replace(filepath.Base(name), "_test.go", "_tables.go", 1)
			if err := os.WriteFile(filepath.Join(target, base), text.Bytes(), 0o644); err != nil {
				return err
			}
		}
		list := fmt.Sprintf("package %s\n\nimport \"testing\"\n\nvar Tables = []testing.InternalTest{\n", one.Name)
		for _, test := range wanted {
			list += fmt.Sprintf("\t{Name: %q, F: %s},\n", test, test)
		}
		if err := os.WriteFile(filepath.Join(target, "all_tables.go"), []byte(list+"}\n"), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// rewrite makes the calls of one file recorded ones, and tells how many.
func rewrite(file *ast.File) int {
	count := 0
	var walk func(node ast.Node, test string)
	walk = func(node ast.Node, test string) {
		ast.Inspect(node, func(child ast.Node) bool {
			switch one := child.(type) {
			case *ast.FuncDecl:
				if one.Body != nil {
					walk(one.Body, testIn(one.Type, ""))
				}
				return false
			case *ast.FuncLit:
				walk(one.Body, testIn(one.Type, test))
				return false
			case *ast.CallExpr:
				if test != "" && makeRecorded(one, test) {
					count++
				}
			}
			return true
		})
	}
	walk(file, "")
	return count
}

// testIn returns the name of the parameter that is the running test, or else the one around it.
func testIn(function *ast.FuncType, around string) string {
	for _, field := range function.Params.List {
		if len(field.Names) == 0 {
			continue
		}
		switch shown(field.Type) {
		case "*testing.T", "testing.TB", "ktesting.TContext":
			return field.Names[0].Name
		case "*testing.B":
			return ""
		}
	}
	return around
}

func makeRecorded(call *ast.CallExpr, test string) bool {
	name, callee := "", ast.Expr(nil)
	switch function := call.Fun.(type) {
	case *ast.SelectorExpr:
		if count, known := methods[function.Sel.Name]; known && count == len(call.Args) {
			name, callee = function.Sel.Name, function.X
		}
	case *ast.Ident:
		if count, known := functions[function.Name]; known && count == len(call.Args) {
			name, callee = strings.ToUpper(function.Name[:1])+function.Name[1:], function
		}
	}
	if name == "" {
		return false
	}
	testName := &ast.CallExpr{Fun: &ast.SelectorExpr{X: ast.NewIdent(test), Sel: ast.NewIdent("Name")}}
	call.Fun = &ast.SelectorExpr{X: ast.NewIdent("record"), Sel: ast.NewIdent(name)}
	call.Args = append([]ast.Expr{testName, callee}, call.Args...)
	return true
}

// recording returns the tests that call what is recorded, by themselves or through other functions of the package.
func recording(files []*ast.File) []string {
	bodies := map[string]map[string]bool{}
	for _, file := range files {
		for _, declared := range file.Decls {
			function, ok := declared.(*ast.FuncDecl)
			if !ok || function.Body == nil || function.Recv != nil {
				continue
			}
			uses := map[string]bool{}
			ast.Inspect(function.Body, func(node ast.Node) bool {
				if name, ok := node.(*ast.Ident); ok {
					uses[name.Name] = true
				}
				return true
			})
			bodies[function.Name.Name] = uses
		}
	}
	var records func(name string, seen map[string]bool) bool
	records = func(name string, seen map[string]bool) bool {
		if seen[name] {
			return false
		}
		seen[name] = true
		if bodies[name]["record"] {
			return true
		}
		for used := range bodies[name] {
			if bodies[used] != nil && records(used, seen) {
				return true
			}
		}
		return false
	}
	var found []string
	for name := range bodies {
		if strings.HasPrefix(name, "Test") && records(name, map[string]bool{}) {
			found = append(found, name)
		}
	}
	sort.Strings(found)
	return found
}

func addImport(file *ast.File) {
	spec := &ast.ImportSpec{Path: &ast.BasicLit{Kind: token.STRING, Value: fmt.Sprintf("%q", record)}}
	for _, declared := range file.Decls {
		if group, ok := declared.(*ast.GenDecl); ok && group.Tok == token.IMPORT {
			group.Lparen = group.Pos()
			group.Specs = append(group.Specs, spec)
			return
		}
	}
}

func shown(node ast.Node) string {
	var text bytes.Buffer
	if err := format.Node(&text, token.NewFileSet(), node); err != nil {
		return ""
	}
	return text.String()
}

func mainTest(names []string) []byte {
	var text bytes.Buffer
	text.WriteString("package schedulertables\n\nimport (\n\t\"os\"\n\t\"testing\"\n\n")
	for _, name := range append([]string{"record"}, names...) {
		fmt.Fprintf(&text, "\t\"schedulertables/%s\"\n", name)
	}
	text.WriteString(")\n\nfunc TestTables(t *testing.T) {\n")
	for _, name := range names {
		fmt.Fprintf(&text, "\tfor _, test := range %s.Tables {\n\t\tt.Run(%q+test.Name, test.F)\n\t}\n", name, name+".")
	}
	text.WriteString("}\n\nfunc TestMain(m *testing.M) {\n\tcode := m.Run()\n\trecord.Write(\"verdicts.jsonl\")\n\tos.Exit(code)\n}\n")
	return text.Bytes()
}
