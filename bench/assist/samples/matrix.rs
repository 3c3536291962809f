//! Dense matrices of 64-bit floats, stored row by row.

#[derive(Debug, Clone)]
pub struct Matrix {
    rows: usize,
    columns: usize,
    values: Vec<f64>,
}

impl Matrix {
    pub fn zeros(rows: usize, columns: usize) -> Self {
        Matrix { rows, columns, values: vec![0.0; rows * columns] }
    }

    pub fn identity(size: usize) -> Self {
        let mut made = Matrix::zeros(size, size);
        for i in 0..size {
            made.set(i, i, 1.0);
        }
        made
    }

    pub fn get(&self, row: usize, column: usize) -> f64 {
        self.values[row * self.columns + column]
    }

    pub fn set(&mut self, row: usize, column: usize, value: f64) {
        self.values[row * self.columns + column] = value;
    }

    pub fn row(&self, row: usize) -> &[f64] {
        let start = row * self.columns;
        &self.values[start..start + self.columns]
    }

    pub fn transpose(&self) -> Matrix {
        let mut made = Matrix::zeros(self.columns, self.rows);
        for i in 0..self.rows {
            for j in 0..self.columns {
                made.set(j, i, self.get(i, j));
            }
        }
        made
    }

    pub fn add(&self, other: &Matrix) -> Option<Matrix> {
        if self.rows != other.rows || self.columns != other.columns {
            return None;
        }
        let mut made = self.clone();
        for (value, more) in made.values.iter_mut().zip(&other.values) {
            *value += more;
        }
        Some(made)
    }

    pub fn multiply(&self, other: &Matrix) -> Option<Matrix> {
        if self.columns != other.rows {
            return None;
        }
        let mut made = Matrix::zeros(self.rows, other.columns);
        for i in 0..self.rows {
            for j in 0..other.columns {
                let mut sum = 0.0;
                for k in 0..self.columns {
                    sum += self.get(i, k) * other.get(k, j);
                }
                made.set(i, j, sum);
            }
        }
        Some(made)
    }

    pub fn trace(&self) -> f64 {
        let mut sum = 0.0;
        for i in 0..self.rows.min(self.columns) {
            sum += self.get(i, i);
        }
        sum
    }

    pub fn scale(&mut self, factor: f64) {
        for value in &mut self.values {
            *value *= factor;
        }
    }

    pub fn norm(&self) -> f64 {
        self.values.iter().map(|value| value * value).sum::<f64>().sqrt()
    }
}

pub fn mean(values: &[f64]) -> Option<f64> {
    if values.is_empty() {
        return None;
    }
    Some(values.iter().sum::<f64>() / values.len() as f64)
}

pub fn clamp_all(values: &mut [f64], low: f64, high: f64) {
    for value in values.iter_mut() {
        if *value < low {
            *value = low;
        } else if *value > high {
            *value = high;
        }
    }
}
