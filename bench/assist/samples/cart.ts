// The cart of a shop: lines, coupons and what must be paid. Prices are in cents.

import { EventEmitter } from "node:events";
import { readFile, writeFile } from "node:fs/promises";
import { basename, join } from "node:path";

export interface Product {
  id: string;
  title: string;
  price: number;
  weight?: number;
}

export interface Line {
  product: Product;
  quantity: number;
}

export interface Coupon {
  code: string;
  percent: number;
  expires: Date;
}

const FREE_SHIPPING_FROM = 5000;
const SHIPPING = 490;

export class Cart extends EventEmitter {
  private lines: Line[] = [];
  private coupon: Coupon | null = null;

  add(product: Product, quantity = 1): void {
    const known = this.lines.find((line) => line.product.id === product.id);
    if (known) {
      known.quantity += quantity;
    } else {
      this.lines.push({ product, quantity });
    }
    this.emit("changed");
  }

  remove(id: string): boolean {
    const before = this.lines.length;
    this.lines = this.lines.filter((line) => line.product.id !== id);
    if (this.lines.length === before) {
      return false;
    }
    this.emit("changed");
    return true;
  }

  redeem(coupon: Coupon, now: Date): void {
    if (coupon.expires < now) {
      throw new Error(`coupon ${coupon.code} has expired`);
    }
    this.coupon = coupon;
    this.emit("changed");
  }

  subtotal(): number {
    return this.lines.reduce((sum, line) => sum + line.product.price * line.quantity, 0);
  }

  discount(): number {
    if (this.coupon === null) {
      return 0;
    }
    return Math.round((this.subtotal() * this.coupon.percent) / 100);
  }

  shipping(): number {
    const goods = this.subtotal() - this.discount();
    if (this.lines.length === 0 || goods >= FREE_SHIPPING_FROM) {
      return 0;
    }
    return SHIPPING;
  }

  total(): number {
    return this.subtotal() - this.discount() + this.shipping();
  }

  get isEmpty(): boolean {
    return this.lines.length === 0;
  }

  toJSON(): { lines: Line[]; coupon: string | null } {
    return { lines: this.lines, coupon: this.coupon?.code ?? null };
  }
}

export function formatPrice(cents: number): string {
  const euros = Math.floor(cents / 100);
  const rest = String(cents % 100).padStart(2, "0");
  return `${euros}.${rest} €`;
}

export function totalWeight(lines: Line[]): number {
  let grams = 0;
  for (const line of lines) {
    if (line.product.weight !== undefined) {
      grams += line.product.weight * line.quantity;
    }
  }
  return grams;
}

export function groupByTitle(lines) {
  const groups = new Map();
  for (const line of lines) {
    const key = line.product.title.toLowerCase();
    const group = groups.get(key) ?? [];
    group.push(line);
    groups.set(key, group);
  }
  return groups;
}

export function loadCart(folder: string, id: string): Promise<string> {
  return readFile(join(folder, `${id}.json`), "utf-8").then((text) => {
    const data = JSON.parse(text);
    return data.customer;
  });
}

export async function saveCart(folder: string, id: string, cart: Cart): Promise<void> {
  const text = JSON.stringify(cart, null, 2);
  await writeFile(join(folder, `${id}.json`), text, "utf-8");
}
