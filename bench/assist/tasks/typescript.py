"""The tasks in TypeScript: instructions, and places to complete."""

from __future__ import annotations

from bench.assist.task import GERMAN, EditTask, place, renamed, swap
from bench.assist.tokens import COMMENT

CART, ROUTER = "cart.ts", "router.ts"

EDITS = [
    EditTask(
        "rename-local", "rename", "cart.ts", "export function formatPrice", "return grams;\n}",
        "Rename `grams` to `sum`.",
        renamed("grams", "sum"),
    ),
    EditTask(
        "rename-parameter", "rename", "cart.ts", "  add(product", "    return true;\n  }",
        "Rename the parameter `id` of remove to `productId`.",
        swap("remove(id: string)", "remove(productId: string)", "!== id)", "!== productId)"),
    ),
    EditTask(
        "unused-import", "imports", "cart.ts", "// The cart", "weight?: number;\n}",
        "Remove the unused import.",
        swap("{ basename, join }", "{ join }"),
    ),
    EditTask(
        "method-comments", "comments", "cart.ts", "  subtotal()", "this.shipping();\n  }",
        "Add a JSDoc comment to every method.",
        swap(
            "  subtotal()", "  /** C */\n  subtotal()",
            "  discount():", "  /** C */\n  discount():",
            "  shipping():", "  /** C */\n  shipping():",
            "  total():", "  /** C */\n  total():",
        ),
        free=(COMMENT,),
    ),
    EditTask(
        "types", "types", "cart.ts", "export function totalWeight", "return groups;\n}",
        "Add types to groupByTitle: its parameter, its map and its result.",
        swap(
            "groupByTitle(lines)", "groupByTitle(lines: Line[]): Map<string, Line[]>",
            "new Map()", "new Map<string, Line[]>()",
        ) + swap(
            "groupByTitle(lines)", "groupByTitle(lines: Line[]): Map<string, Line[]>",
            "const groups = new Map()", "const groups: Map<string, Line[]> = new Map()",
        ) + swap(
            "groupByTitle(lines)", "groupByTitle(lines: Line[]): Map<string, Line[]>",
            "const groups = new Map()",
            "const groups: Map<string, Line[]> = new Map<string, Line[]>()",
        ),
    ),
    EditTask(
        "async", "rewrite", "cart.ts", "export function loadCart", 'text, "utf-8");\n}',
        "Write loadCart with async and await.",
        tuple(
            rewrite
            for middle in (
                "  const data = JSON.parse(text);\n  return data.customer;\n",
                "  return JSON.parse(text).customer;\n",
            )
            for rewrite in swap(
                "export function loadCart", "export async function loadCart",
                '  return readFile(join(folder, `${id}.json`), "utf-8").then((text) => {\n'
                "    const data = JSON.parse(text);\n    return data.customer;\n  });\n",
                '  const text = await readFile(join(folder, `${id}.json`), "utf-8");\n' + middle,
            )
        ),
    ),
    EditTask(
        "optional-coupon", "rewrite", "cart.ts", "  redeem(", "line.quantity, 0);\n  }",
        "redeem should return true if the coupon was taken and false if it has expired, instead of "
        "throwing an error.",
        swap(
            "now: Date): void {", "now: Date): boolean {",
            "throw new Error(`coupon ${coupon.code} has expired`);", "return false;",
            'this.coupon = coupon;\n    this.emit("changed");\n',
            'this.coupon = coupon;\n    this.emit("changed");\n    return true;\n',
        ),
    ),
    EditTask(
        "logging", "delete", "router.ts", "  navigate(", "    return true;\n  }",
        "Remove the calls of console.log.",
        swap(
            '    console.log("navigate", url);\n', "", '    console.log("found", found);\n', "",
            '    console.log("done");\n', "",
        ),
    ),
    EditTask(
        "translate", "translate", "router.ts", "// Wandelt", "keys };\n}",
        "Translate the comments to English.",
        swap(
            "Wandelt ein Muster in einen regulären Ausdruck um.",
            "Turns a pattern into a regular expression.",
            "Ein Doppelpunkt leitet einen Parameter ein.", "A colon starts a parameter.",
            "Alles andere muss wörtlich passen.", "Everything else must match literally.",
        ),
        free=(COMMENT,), lacks=(GERMAN,),
    ),
    EditTask(
        "no-var", "rewrite", "router.ts", "export function debounce", "wait);\n  };\n}",
        "Use let or const instead of var.",
        (
            *swap("var timer", "let timer", "var pending", "const pending"),
            *swap("var timer", "let timer", "var pending", "let pending"),
        ),
    ),
]  # fmt: skip

COMPLETIONS = [
    place(CART, "const known = this.lines.find(¦(line) => line.product.id === product.id¦);",
          r"\(?\w+\)? => \w+\.product\.id === product\.id"),
    place(CART, "if (known) {\n      ¦known.quantity += quantity;¦\n    } else"),
    place(CART, "this.lines.push(¦{ product, quantity }¦);",
          r"\{ product: product, quantity: quantity \}"),
    place(CART, "this.lines = this.lines.filter(¦(line) => line.product.id !== id¦);",
          r"\(?\w+\)? => \w+\.product\.id !== id"),
    place(CART, "throw new Error(¦`coupon ${coupon.code} has expired`¦);", r'[`"][^`"]*[`"]'),
    place(CART, "if (this.coupon === null) {\n      ¦return 0;¦\n    }"),
    place(CART,
          "return this.lines.reduce(¦(sum, line) => sum + line.product.price * line.quantity, 0¦);",
          r"\(\w+, \w+\) => \w+ \+ \w+\.(product\.price \* \w+\.quantity|quantity \* "
          r"\w+\.product\.price), 0"),
    place(CART, "total(): number {\n    ¦return this.subtotal() - this.discount() + "
          "this.shipping();¦\n", r"return this\.subtotal\(\) \+ this\.shipping\(\) - "
          r"this\.discount\(\);"),
    place(CART, "get isEmpty(): boolean {\n    return ¦this.lines.length === 0;¦"),
    place(CART, 'const rest = String(cents % 100).¦padStart(2, "0");¦'),
    place(CART, "for (const line of lines) {\n    if (¦line.product.weight !== undefined¦) {",
          r"line\.product\.weight"),
    place(CART, "const group = groups.get(key) ¦?? [];¦", r"\|\| \[\];"),
    place(CART, "return { lines: this.lines, ¦coupon: this.coupon?.code ?? null¦ };",
          r"coupon: this\.coupon \? this\.coupon\.code : null"),
    place(CART, 'return readFile(join(folder, ¦`${id}.json`), "utf-8")¦.then',
          r"`\$\{id\}\.json`\)"),
    place(CART, "const euros = ¦Math.floor(cents / 100);¦"),
    place(CART, "grams += line.product.we¦ight * line.quantity;¦"),
    place(CART, "const data = JSON.parse(¦text¦);"),
    place(CART, "const text = JSON.stringify(¦cart, null, 2¦);", "cart"),
    place(ROUTER, 'if (part.startsWith(¦":"¦)) {'),
    place(ROUTER, "const found = ¦route.regex.exec(path);¦", r"path\.match\(route\.regex\);"),
    place(ROUTER, "(_, key: string) => {\n    ¦const value = params[key];¦"),
    place(ROUTER, "return search ? ¦`${path}?${search}` : path;¦"),
    place(ROUTER, "timer = setTimeout(¦call, wait¦);"),
    place(ROUTER,
          "if (value === undefined) {\n      throw new Error(¦`parameter ${key} is missing`¦);",
          r'[`"][^`"]*[`"]'),
    place(ROUTER, "params[key] = decodeURIComponent(¦found[index + 1]¦);"),
    place(ROUTER, 'const [path, search = ""] = ¦url.split("?");¦'),
    place(ROUTER, "if (found === null) {\n      ¦this.fallback({}, query);¦"),
    place(ROUTER, "const search = new URLSearchParams(¦query).toString();¦"),
    place(ROUTER, "const first = Number(found[1]);\n  ¦const last = Number(found[2]);¦"),
    place(ROUTER, "if (pending) {\n      ¦clearTimeout(timer);¦\n    }"),
]  # fmt: skip
